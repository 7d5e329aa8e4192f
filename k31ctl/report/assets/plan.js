// Draws the charts of a plan's page, redraws them at another width, and wires the sliders.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("plan-data").textContent);
  const boxes = [...document.querySelectorAll("[data-chart]")];
  const details = [...document.querySelectorAll("main details")];
  const widths = new Map();
  const PAPER = 690; // what A4 holds between its margins, in CSS pixels

  const draw = (box, width = Math.floor(box.clientWidth)) => {
    if (width === 0) return;
    widths.set(box, width);
    const drawn = planCharts[box.dataset.chart](data, width);
    box.replaceChildren(...drawn);
    const pictures = [...box.children].filter((child) => child.matches("svg"));
    pictures.forEach((picture, n) => {
      const part = pictures[n].previousElementSibling?.matches(".sub") ? `: ${picture.previousElementSibling.textContent}` : "";
      picture.setAttribute("role", "img");
      picture.setAttribute("aria-label", box.dataset.label + part);
      // The whole picture has one name; groups without a role may not have one of their own.
      picture.querySelectorAll("g[aria-label]").forEach((group) => group.removeAttribute("aria-label"));
    });
  };

  // A table wider than the page scrolls, and then the keyboard must reach it.
  const reach = () => document.querySelectorAll(".scroll").forEach((box) => {
    const scrolls = box.scrollWidth > box.clientWidth;
    for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", box.querySelector("caption").textContent]]) {
      if (scrolls) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  });

  boxes.forEach((box) => draw(box));
  reach();

  const redraw = () => {
    boxes.filter((box) => Math.floor(box.clientWidth) !== widths.get(box)).forEach((box) => draw(box));
    reach();
  };
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
  details.forEach((part) => part.addEventListener("toggle", reach));
  window.addEventListener("beforeprint", () => {
    details.forEach((part) => { part.open = true; });
    boxes.forEach((box) => draw(box, box.closest(".grid") ? PAPER / 2 - 20 : PAPER));
  });
  window.addEventListener("afterprint", () => {
    fold();
    redraw();
  });
})();
