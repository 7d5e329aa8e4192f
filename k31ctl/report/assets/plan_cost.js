// What two sliders change: costs go up with the price of a GPU-hour and down with the busy share.
// At the values of the plan they give back the plan's own numbers.
globalThis.planCost = (() => {
  "use strict";
  const LARGE = [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]];
  const digits = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
  const usd = (value) =>
    Math.abs(value) >= 1000
      ? `$${Math.round(value).toLocaleString("en-US")}`
      : `$${Math.abs(value) >= 0.1 ? value.toFixed(2) : digits(value)}`;
  const large = (value) => {
    const found = LARGE.find(([size]) => value >= size);
    return found ? `${(value / found[0]).toPrecision(3)} ${found[1]}` : digits(value);
  };
  const scaled = (cost, key, { price, busy }) =>
    (cost[key] * price * cost.utilisation) / (cost.price * busy);

  // {price, busy} as the sliders stand.
  const chosen = (cost) => {
    const slider = (name) => Number(document.getElementById(name).value);
    return { price: slider("price"), busy: slider("utilisation") / 100 };
  };

  const show = (cost) => {
    const now = chosen(cost);
    const say = (name, text) => { document.getElementById(name).textContent = text; };
    say("price-shown", usd(now.price));
    say("utilisation-shown", `${Math.round(now.busy * 100)} %`);
    say("out-cost", usd(scaled(cost, "usd_per_m_output_tokens", now)));
    document.getElementById("price").setAttribute("aria-valuetext", `${usd(now.price)} per GPU-hour`);
    document.getElementById("utilisation").setAttribute("aria-valuetext", `${Math.round(now.busy * 100)} percent`);
    if (typeof cost.usd_per_hour === "number") {
      say("out-hour", usd((cost.usd_per_hour * now.price) / cost.price));
    }
    if (typeof cost.break_even_tokens_per_day === "number") {
      say("out-even", large((cost.break_even_tokens_per_day * now.price) / cost.price));
    }
  };

  planCharts.utilisation = ({ cost }, width) => {
    const { price, busy: at } = chosen(cost);
    const key = "usd_per_m_output_tokens";
    const shares = d3.range(5, 101).map((percent) => percent / 100);
    const rows = shares.map((busy) => ({
      busy: busy * 100,
      value: scaled(cost, key, { price, busy }),
      low: scaled(cost, `${key}_low`, { price, busy }),
      high: scaled(cost, `${key}_high`, { price, busy }),
    }));
    const banded = rows.filter((row) => Number.isFinite(row.low) && Number.isFinite(row.high));
    const lowest = (row) => (Number.isFinite(row.low) ? row.low : row.value);
    const highest = (row) => (Number.isFinite(row.high) ? row.high : row.value);
    const now = { busy: at * 100, value: scaled(cost, key, { price, busy: at }) };
    const api = typeof cost.api_output === "number" ? [cost.api_output] : [];
    return [
      Plot.plot({
        width, height: Math.max(240, Math.min(320, width * 0.42)),
        marginLeft: 54, marginRight: 20, marginTop: 30, marginBottom: 38,
        style: { background: "transparent", fontSize: "12px" },
        x: { label: "busy share of the day, % →", ticks: width < 500 ? 5 : 10 },
        y: { type: "log" },
        marks: [
          planCharts.logY(
            planCharts.decades(d3.min(rows, lowest), d3.max(rows, highest)),
            "↑ US dollars per million output tokens", (value) => `$${digits(value)}`,
          ),
          Plot.areaY(banded, { x: "busy", y1: "low", y2: "high", fill: "var(--c5)", fillOpacity: 0.2 }),
          Plot.ruleY(api, { stroke: "var(--limit)", strokeDasharray: "6,4", strokeWidth: 1.5 }),
          Plot.text(api, { y: (value) => value, frameAnchor: "right", dy: -8, textAnchor: "end", text: (value) => `${cost.api_name}: ${usd(value)}` }),
          Plot.line(rows, { x: "busy", y: "value", stroke: "var(--c5)", strokeWidth: 2 }),
          Plot.dot([now], { x: "busy", y: "value", r: 6, fill: "var(--c5)", stroke: "var(--panel)", strokeWidth: 2 }),
          Plot.text([now], { x: "busy", y: "value", text: (row) => usd(row.value), dy: -14, dx: 6, textAnchor: "start", fontWeight: 600 }),
        ],
      }),
    ];
  };

  return { show };
})();
