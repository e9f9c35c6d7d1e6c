// Draws every figure anew where scripts run: values under the pointer, zoom, smoothing, log axis, three x axes.
// `data` is what curves.py made; uPlot (https://github.com/leeoniya/uPlot) draws.
function drawCharts(data, settings) {
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const names = ["blue", "vermillion", "green", "purple", "orange", "sky", "yellow", "grey"];
  const dashes = {solid: [], dashed: [6, 4], dotted: [2, 3]};
  const several = data.runs.length > 1;

  // A debiased moving average; a gap stays a gap, and what was not measured stays unmeasured.
  function smooth(values, rate) {
    let mean = 0, weight = 0;
    return values.map(y => {
      if (typeof y !== "number") return y;
      mean = rate * mean + (1 - rate) * y;
      weight = rate * weight + (1 - rate);
      return mean / weight;
    });
  }

  // One curve of one run, as a table of two columns without what was not measured.
  function table(chart, run, metric, rate) {
    const part = run[chart.part], values = part.y[metric];
    if (!values) return null;
    const kept = values.map((y, i) => [part.x[settings.x][i], y]).filter(pair => pair[1] !== "");
    const usable = y => y !== null && !(logarithmic(chart) && y <= 0);
    const ys = kept.map(pair => usable(pair[1]) ? pair[1] * chart.scale : null);
    return [kept.map(pair => pair[0]), rate ? smooth(ys, rate) : ys];
  }

  // A number in so many digits, with an exponent where it is very large or small.
  function size(y, digits) {
    const plain = Number(y.toPrecision(digits)), magnitude = Math.abs(plain);
    return magnitude >= 1e6 || (plain && magnitude < 1e-3) ? plain.toExponential() : String(plain);
  }

  const logarithmic = chart => settings.log || chart.log;

  // {tables, series, bands} of a chart, all runs together.
  function content(chart) {
    const tables = [], series = [], bands = [], at = {};
    const add = (table, options) => { tables.push(table); return series.push(options); };
    data.runs.forEach((run, number) => chart.curves.forEach((curve, place) => {
      const own = table(chart, run, curve.metric, settings.smooth);
      if (!own) return;
      const stroke = colour(several ? names[number % names.length] : curve.colour);
      const dash = several ? Object.values(dashes)[place % 3] : dashes[curve.dash];
      if (settings.smooth) {
        const raw = table(chart, run, curve.metric, 0);
        add(raw, {label: "", class: "unsmoothed", stroke: stroke + "40", width: 1, points: {show: false}});
      }
      const label = several ? run.name + (chart.curves.length > 1 ? " · " + curve.label : "") : curve.label;
      const value = (plot, y, place, at) => {  // the last one measured, where this step has none
        const ys = plot.data[place];
        while (at > 0 && ys[at] === undefined) at--;
        return typeof ys[at] === "number" ? size(ys[at], 4) : "–";
      };
      at[number + " " + curve.metric] = add(own, {label, stroke, dash, width: 1.6, value});
      const width = table({...chart, log: false}, run, curve.metric + "_ci95", 0);
      if (width && width[0].length === own[0].length) {
        const edge = sign => add([own[0], own[1].map((y, i) => y === null ? null : y + sign * width[1][i])],
          {label: "", class: "unsmoothed", stroke: "#0000", width: 1, points: {show: false}});
        bands.push({series: [edge(1), edge(-1)], fill: stroke + "30"});
      }
    }));
    if (!several) for (const [low, high] of chart.bands) {
      const ends = [at["0 " + high], at["0 " + low]];
      if (ends[0] && ends[1]) bands.push({series: ends, fill: colour("blue") + "20"});
    }
    return {tables, series, bands};
  }

  function draw(chart, figure) {
    const {tables, series, bands} = content(chart);
    if (!tables.length) return null;
    const joined = uPlot.join(tables, tables.map(one => one.map(() => 1)));
    const axis = {stroke: colour("soft"), grid: {stroke: colour("line"), width: 1}, ticks: {show: false}};
    const box = figure.querySelector(".chart"), unit = {step: "step", tokens: "tokens", seconds: "seconds"};
    const rest = plot => plot.setLegend({idx: joined[0].length - 1});  // where no pointer is
    const plot = new uPlot({
      hooks: {ready: [rest], setCursor: [plot => plot.cursor.idx == null && rest(plot)]},
      width: box.clientWidth || 400, height: 250, series: [{label: unit[settings.x]}, ...series], bands,
      cursor: {sync: {key: "charts"}, y: false},
      scales: {
        x: {time: false},
        y: logarithmic(chart) ? {distr: 3} : {range: (_, low, high) => uPlot.rangeNum(Math.min(low, 0) === 0 ? 0
          : low, high, 0.1, true)},
      },
      axes: [
        {...axis, values: (_, ticks) => ticks.map(x => size(x, 6))},
        {...axis, size: 62, values: (_, ticks) => ticks.map(y => y === null ? "" : size(y, 6))},
      ],
    }, joined, box);
    return plot;
  }

  const plots = [];
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const chart = data.charts.find(one => one.title === figure.dataset.chart);
    const box = figure.querySelector(".chart");
    box.replaceChildren();
    const plot = chart && draw(chart, figure);
    figure.classList.toggle("drawn", Boolean(plot));
    if (plot) plots.push([plot, box]);
  }
  return plots;
}

// The controls above the figures, and everything that makes the figures be drawn again.
function startCharts(data) {
  const settings = {x: "step", smooth: 0, log: false};
  const controls = document.getElementById("controls");
  let plots = [];
  const redraw = keepZoom => {
    const zoomed = {};
    for (const [plot, box] of plots) {
      const {min, max} = plot.scales.x, xs = plot.data[0];
      if (keepZoom === true && (min > xs[0] || max < xs.at(-1))) zoomed[box.parentNode.dataset.chart] = {min, max};
      plot.destroy();
    }
    plots = drawCharts(data, settings);
    for (const [plot, box] of plots) {
      const range = zoomed[box.parentNode.dataset.chart];
      if (range) plot.setScale("x", range);
    }
  };
  controls.hidden = false;
  controls.addEventListener("input", () => {
    settings.x = controls.elements.x.value;
    settings.smooth = Number(controls.elements.smooth.value);
    settings.log = controls.elements.log.checked;
    controls.elements.shown.value = settings.smooth ? String(settings.smooth) : "off";
    redraw();
  });
  const fit = () => plots.forEach(([plot, box]) => plot.setSize({width: box.clientWidth, height: 250}));
  addEventListener("resize", fit);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  redraw();
  return newer => { data = newer; redraw(true); };
}
