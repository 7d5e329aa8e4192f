// The charts of a plan's page: each takes the page's data and a width, and returns elements.
// Colours are the page's CSS variables, so that a theme or paper changes them without a redraw.
globalThis.planCharts = (() => {
  "use strict";
  const GIB = 2 ** 30;
  const PARTS = [
    ["weights", "weights"], ["activations", "activations"], ["graphs", "CUDA graphs"],
    ["engine", "other engine memory"], ["extra", "draft, adapter"], ["kv", "KV cache asked for"],
    ["state", "KDA state"], ["pool", "cache still free"], ["left", "left, outside the cache"],
  ];
  const SERIES = 6;
  const SYMBOLS = ["circle", "square", "triangle", "diamond", "star", "cross"];
  const few = (value, digits = 3) =>
    value.toLocaleString("en-US", { maximumSignificantDigits: digits });
  const has = (value) => typeof value === "number";
  const margin = (names, width) =>
    Math.min(width * 0.42, 16 + 6.6 * Math.max(...names.map((name) => name.length)));
  const clipped = (width) => (name) => {
    const most = Math.floor((width * 0.42 - 16) / 6.4);
    return name.length > most ? `${name.slice(0, most - 1)}…` : name;
  };

  // One, two and five of each power of ten inside a range, fewer where there are many powers.
  const decades = (low, high) => {
    const powers = d3.range(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)) + 1);
    const span = Math.log10(high / low);
    const leads = span > 3 ? [1] : span > 1.5 ? [1, 3] : [1, 2, 5];
    return powers
      .flatMap((power) => leads.map((lead) => lead * 10 ** power))
      .filter((value) => value >= low && value <= high);
  };
  // Axes of logarithmic scales: these ticks, all of them labelled.
  const logX = (values, label) =>
    Plot.axisX(values, { text: (value) => few(value), label, tickSize: 4 });
  const logY = (values, label, say = few) => [
    Plot.gridY(values),
    Plot.axisY(values, { text: (value) => say(value), label, tickSize: 0 }),
  ];

  const plot = (width, options) =>
    Plot.plot({ width, ...options, style: { background: "transparent", fontSize: "12px", ...options.style } });

  const swatches = (pairs) =>
    Plot.legend({
      color: { type: "ordinal", domain: pairs.map((p) => p[0]), range: pairs.map((p) => p[1]) },
      style: { background: "transparent", fontSize: "12px" },
    });

  const memory = ({ memory: bars }, width) => {
    const rows = bars.flatMap((bar) =>
      PARTS.filter(([part]) => bar.parts[part] > 0).map(([part, label]) => ({
        bar: bar.name, part, label, gib: bar.parts[part] / GIB, of: bar.capacity / GIB,
      })));
    const used = PARTS.filter(([part]) => rows.some((row) => row.part === part));
    const most = Math.max(...bars.map((bar) => bar.capacity / GIB), ...bars.map((bar) =>
      d3.sum(Object.values(bar.parts)) / GIB));
    const names = bars.map((bar) => bar.name);
    const left = margin(names, width);
    const stack = (more) =>
      Plot.stackX({ x: "gib", y: "bar", z: "part", order: PARTS.map((p) => p[0]), ...more });
    const wide = (row) => (row.gib / most) * (width - left - 20) > 40;
    return [
      swatches(used.map(([part, label]) => [label, `var(--m-${part})`])),
      plot(width, {
        marginLeft: left, marginRight: 20, marginBottom: 38, height: 62 + 44 * bars.length,
        x: { label: "GiB", domain: [0, most * 1.01], grid: true, ticks: width < 500 ? 4 : 8 },
        y: { label: null, domain: names, padding: 0.28, tickSize: 0, tickFormat: clipped(width) },
        marks: [
          Plot.barX(rows, stack({
            fill: (row) => `var(--m-${row.part})`, insetLeft: 0.5, insetRight: 0.5,
            title: (row) => `${row.bar}\n${row.label}: ${row.gib.toFixed(1)} GiB`, tip: true,
          })),
          Plot.text(rows, stack({
            text: (row) => (wide(row) ? row.gib.toFixed(1) : ""), fill: (row) => `var(--on-${row.part})`,
            fontWeight: 600, fontVariant: "tabular-nums",
          })),
          Plot.tickX(bars, {
            x: (bar) => bar.capacity / GIB, y: "name", stroke: "var(--limit)", strokeWidth: 3,
            insetTop: -6, insetBottom: -6,
          }),
        ],
      }),
    ];
  };

  const heatmap = ({ heatmap: cells }, width) => {
    const timed = cells.some((cell) => has(cell.tpot_s));
    const value = (cell) => (timed ? cell.tpot_s * 1e3 : cell.max_requests / cell.batch);
    const known = cells.filter((cell) => cell.fits && has(value(cell)));
    const steps = timed
      ? [...new Set(d3.ticks(...d3.extent(known, value), 5))].slice(0, 4)
      : [1.5, 3, 10, 30];
    const shade = (cell) => `var(--h${d3.bisectRight(steps, value(cell)) + 1})`;
    const unit = timed ? "ms" : "×";
    const names = steps.map((step) => `${few(step)} ${unit}`);
    const legend = [
      ...[`under ${names[0]}`, ...names.map((name) => `from ${name}`)].map((n, i) => [n, `var(--h${i + 1})`]),
      ["does not fit", "var(--no)"],
    ];
    const contexts = [...new Set(cells.map((cell) => cell.context))];
    const batches = [...new Set(cells.map((cell) => cell.batch))].sort((a, b) => b - a);
    const said = (cell) => (width / contexts.length < 34 ? "" : !cell.fits ? "no" : few(value(cell), width < 500 ? 2 : 3));
    return [
      swatches(legend),
      plot(width, {
        marginLeft: 56, marginBottom: 40, marginTop: 8, padding: 0.05,
        height: 58 + Math.min(46, 400 / batches.length + 14) * batches.length,
        x: { label: "tokens of context", tickSize: 0, domain: contexts },
        y: { label: "requests at once", domain: batches, tickSize: 0, tickFormat: d3.format(",") },
        marks: [
          Plot.cell(cells, {
            x: "context", y: "batch", fill: (cell) => (cell.fits ? shade(cell) : "var(--no)"), rx: 4,
            title: (cell) => `${cell.context} tokens, ${cell.batch} at once: ${cell.fits ? "fits" : "does not fit"}\nat most ${cell.max_requests} at once${has(cell.tpot_s) ? `\n${few(cell.tpot_s * 1e3)} ms per output token` : ""}`,
            tip: true,
          }),
          Plot.text(cells, {
            x: "context", y: "batch", text: said,
            fill: (cell) => (cell.fits ? "var(--ink)" : "var(--muted)"), fontVariant: "tabular-nums",
          }),
        ],
      }),
    ];
  };

  const curve = (key, { factor = 1, label, colour = "var(--c1)" }) => (data, width) => {
    const points = data.curve.filter((point) => has(point[key]) && point.concurrency > 0);
    if (points.length === 0) return [];
    const low = (point) => point[`${key}_low`] * factor;
    const high = (point) => point[`${key}_high`] * factor;
    const ranged = points.filter((point) => has(point[`${key}_low`]) && has(point[`${key}_high`]));
    const at = points.map((point) => point.concurrency);
    const values = [...points.map((point) => point[key] * factor), ...ranged.flatMap((p) => [low(p), high(p)])];
    const steep = d3.min(values) > 0 && d3.max(values) / d3.min(values) > 40;
    const every = Math.ceil(at.length / (width < 420 ? 5 : 8));
    return [
      plot(width, {
        height: Math.max(220, Math.min(300, width * 0.62)), marginLeft: 54, marginRight: 18, marginTop: 30, marginBottom: 38,
        x: { type: "log", label: "requests at once →" },
        y: steep
          ? { type: "log", label: `↑ ${label}` }
          : { label: `↑ ${label}`, grid: true, zero: true, nice: true, ticks: 5, tickSize: 0 },
        marks: [
          logX(at.filter((_, n) => n % every === 0), "requests at once →"),
          steep ? logY(decades(d3.min(values), d3.max(values)), `↑ ${label}`) : null,
          Plot.areaY(ranged, { x: "concurrency", y1: low, y2: high, fill: colour, fillOpacity: 0.2, curve: "monotone-x" }),
          at.includes(data.concurrency)
            ? Plot.ruleX([data.concurrency], { stroke: "var(--muted)", strokeDasharray: "3,3" })
            : null,
          Plot.line(points, { x: "concurrency", y: (p) => p[key] * factor, stroke: colour, strokeWidth: 2, curve: "monotone-x" }),
          Plot.dot(points, {
            x: "concurrency", y: (p) => p[key] * factor, r: 4, stroke: colour, strokeWidth: 2,
            fill: (p) => (p.fits ? colour : "var(--panel)"), tip: true,
            title: (p) => `${p.concurrency} at once: ${few(p[key] * factor)} ${label}${has(p[`${key}_low`]) ? `\nfrom ${few(low(p))} to ${few(high(p))}` : ""}${p.fits ? "" : "\nmore than the cache holds"}`,
          }),
        ],
      }),
    ];
  };

  const BOUNDS = {
    memory: ["memory bandwidth", "var(--c1)"], compute: ["arithmetic", "var(--c3)"],
    network: ["links between GPUs", "var(--c4)"], launch: ["kernel launches", "var(--c2)"],
    queue: ["the queue", "var(--c5)"],
  };
  const bounds = (row) => BOUNDS[row.bound_by] ?? [row.bound_by, "var(--c6)"];

  const breakdown = ({ breakdown: parts }, width) => [
    swatches([...new Map(parts.map(bounds)), ["peak of the hardware", "var(--limit)"]]),
    ...[...new Set(parts.map((part) => part.phase))].flatMap((phase) => {
      const rows = parts.filter((part) => part.phase === phase);
      const slow = d3.sum(rows, (row) => row.seconds) > 1;
      const [factor, unit] = slow ? [1, "s"] : [1e3, "ms"];
      const title = document.createElement("p");
      title.className = "sub";
      title.textContent = `${phase}: ${few(d3.sum(rows, (row) => row.seconds) * factor)} ${unit}`;
      const shown = plot(width, {
        marginLeft: margin(rows.map((row) => row.part), width), marginRight: 60, marginBottom: 38,
        height: 52 + 28 * rows.length,
        x: { label: unit, grid: true, ticks: width < 500 ? 4 : 8 },
        y: { label: null, domain: rows.map((row) => row.part), padding: 0.3, tickSize: 0, tickFormat: clipped(width) },
        marks: [
          Plot.barX(rows, { x: (row) => row.seconds * factor, y: "part", fill: (row) => bounds(row)[1] }),
          Plot.tickX(rows.filter((row) => row.limit_s > 0), {
            x: (row) => row.limit_s * factor, y: "part", stroke: "var(--limit)", strokeWidth: 3, insetTop: -2, insetBottom: -2,
          }),
          Plot.text(rows, {
            x: (row) => row.seconds * factor, y: "part", text: (row) => few(row.seconds * factor), textAnchor: "start", dx: 6,
          }),
        ],
      });
      return [title, shown];
    }),
  ];

  const pareto = ({ candidates }, width) => {
    const found = candidates.filter((row) => has(row.tok_s_per_user) && has(row.total_tok_s_per_gpu));
    const kinds = [...new Set(found.map((row) => String(row.hardware)))];
    const best = found.filter((row) => row.pareto);
    const colour = (row) => `var(--c${(kinds.indexOf(String(row.hardware)) % SERIES) + 1})`;
    const at = { x: "tok_s_per_user", y: "total_tok_s_per_gpu" };
    return [
      Plot.legend({
        symbol: { domain: kinds, range: kinds.map((_, n) => SYMBOLS[n % SERIES]) },
        color: { type: "ordinal", domain: kinds, range: kinds.map((_, n) => `var(--c${(n % SERIES) + 1})`) },
        stroke: "color", fill: "color",
        style: { background: "transparent", fontSize: "12px" },
      }),
      plot(width, {
        height: Math.max(280, Math.min(440, width * 0.5)), marginLeft: 60, marginRight: 24, marginTop: 32, marginBottom: 40,
        x: { label: "tokens/s for one reader →", grid: true, zero: true, nice: true, ticks: width < 500 ? 5 : 10 },
        y: { label: "↑ tokens/s per GPU, in and out", tickSize: 0, grid: true, zero: true, nice: true },
        symbol: { domain: kinds, range: kinds.map((_, n) => SYMBOLS[n % SERIES]) },
        marks: [
          Plot.line(best, { ...at, stroke: "var(--muted)", strokeWidth: 1.5, strokeDasharray: "5,4", sort: "tok_s_per_user" }),
          Plot.dot(found, {
            ...at, symbol: (row) => String(row.hardware), r: 6, stroke: colour, strokeWidth: 2,
            fill: (row) => (row.meets_slo ? colour(row) : "var(--panel)"), tip: true,
            title: (row) => `${row.name}\n${has(row.concurrency) ? `${row.concurrency} at once\n` : ""}${few(row.tok_s_per_user)} tokens/s for one reader\n${few(row.total_tok_s_per_gpu)} tokens/s per GPU${has(row.usd_per_m_output_tokens) ? `\n$${few(row.usd_per_m_output_tokens)} per million output tokens` : ""}${row.meets_slo ? "" : "\nmisses the service levels"}`,
          }),
          Plot.text(best.filter((row, n) => has(row.concurrency) && n % Math.ceil(best.length / 8) === 0), {
            ...at, text: (row) => `${few(row.concurrency)} at once`, dy: -14, textAnchor: "start", dx: 4, fontSize: 11,
          }),
        ],
      }),
    ];
  };

  const start = ({ start: parts }, width) => {
    const total = d3.sum(parts, (part) => part.seconds);
    const [factor, unit] = total > 300 ? [1 / 60, "minutes"] : [1, "seconds"];
    let before = 0;
    const rows = parts.filter((part) => has(part.seconds)).map((part) => {
      const row = { part: part.part, from: before * factor, to: (before + part.seconds) * factor, takes: part.seconds * factor };
      before += part.seconds;
      return row;
    });
    return [
      plot(width, {
        marginLeft: margin(rows.map((row) => row.part), width), marginRight: 64, marginBottom: 38, height: 56 + 30 * rows.length,
        x: { label: `${unit} since the start`, grid: true, ticks: width < 500 ? 4 : 8 },
        y: { label: null, domain: rows.map((row) => row.part), padding: 0.3, tickSize: 0, tickFormat: clipped(width) },
        marks: [
          Plot.barX(rows, { x1: "from", x2: "to", y: "part", fill: "var(--c2)" }),
          Plot.text(rows, { x: "to", y: "part", text: (row) => few(row.takes), textAnchor: "start", dx: 6 }),
        ],
      }),
    ];
  };

  return {
    decades, logY, memory, heatmap, breakdown, pareto, start,
    ttft: curve("ttft_s", { label: "seconds" }),
    tpot: curve("tpot_s", { factor: 1e3, label: "milliseconds", colour: "var(--c2)" }),
    output: curve("output_tok_s", { label: "tokens/s", colour: "var(--c3)" }),
    user: curve("tok_s_per_user", { label: "tokens/s", colour: "var(--c4)" }),
    "cost-by-load": curve("usd_per_m_output_tokens", { label: "US dollars", colour: "var(--c5)" }),
  };
})();
