// Draws the charts of a plan's page, redraws them at another width, and wires the sliders.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("plan-data").textContent);
  const boxes = [...document.querySelectorAll("[data-chart]")];
  const details = [...document.querySelectorAll("main details")];
  const widths = new Map();

  const draw = (box) => {
    const width = Math.floor(box.clientWidth);
    if (width === 0) return;
    widths.set(box, width);
    const drawn = planCharts[box.dataset.chart](data, width);
    box.replaceChildren(...drawn);
    const pictures = [...box.children].filter((child) => child.matches("svg"));
    pictures.forEach((picture, n) => {
      const part = pictures[n].previousElementSibling?.matches(".sub") ? `: ${picture.previousElementSibling.textContent}` : "";
      picture.setAttribute("role", "img");
      picture.setAttribute("aria-label", box.dataset.label + part);
    });
  };

  boxes.forEach(draw);

  const redraw = () => boxes.filter((box) => Math.floor(box.clientWidth) !== widths.get(box)).forEach(draw);
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 120);
  });

  const sliders = document.querySelector(".sliders");
  if (sliders && data.cost) {
    document.querySelectorAll("#what-if [hidden]").forEach((part) => { part.hidden = false; });
    const curve = document.querySelector('[data-chart="utilisation"]');
    sliders.addEventListener("submit", (event) => event.preventDefault());
    sliders.addEventListener("input", () => {
      planCost.show(data.cost);
      draw(curve);
    });
  }

  // The numbers stand open in the file; on a screen with charts they fold, on paper they open.
  const fold = () => details.forEach((part) => { part.open = false; });
  fold();
  window.addEventListener("beforeprint", () => details.forEach((part) => { part.open = true; }));
  window.addEventListener("afterprint", fold);
})();
