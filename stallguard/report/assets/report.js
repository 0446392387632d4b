"use strict";
// Draws the timeline of the data block: one chart a panel, one clock for all of them.
(() => {
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const charts = [];

  // ---- theme ------------------------------------------------------------------------------------------------
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const button = document.getElementById("theme");
  const repaint = () => {
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    charts.forEach((chart) => chart.redraw(false, true));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem("stallguard-theme", root.dataset.theme); } catch { /* no storage in a mail */ }
    repaint();
  });
  dark.addEventListener("change", repaint);
  repaint();

  // What is folded away on the screen is unfolded on paper.
  const folded = () => [...document.querySelectorAll("details[data-print]")];
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = folded().filter((one) => !one.open);
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));

  const lane = document.getElementById("lane");
  if (!lane || typeof uPlot === "undefined") return;
  const data = JSON.parse(document.getElementById("data").textContent);

  // ---- numbers as words -------------------------------------------------------------------------------------
  const digits = (value) => Number(value.toPrecision(3)).toString();
  const scaled = (value, steps) => {
    const [size, unit] = steps.find(([size]) => Math.abs(value) >= size) || steps[steps.length - 1];
    return `${digits(value / size)} ${unit}`;
  };
  const UNITS = {
    "s": (v) => v === 0 ? "0" : scaled(v, [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]),
    "bytes": (v) => v === 0 ? "0" : scaled(v, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]),
    "share": (v) => `${digits(v * 100)} %`,
    "watts": (v) => `${digits(v)} W`,
  };
  const worded = (value, unit) => (UNITS[unit] || digits)(value);

  // ---- the clock of the machine that trained: its offset is added, then time is shown as if it were UTC ------
  const zero = data.start + data.offset;
  const two = (number) => String(number).padStart(2, "0");
  const clock = (seconds, fine) => {
    const at = new Date((zero + seconds) * 1000);
    return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}${fine ? `:${two(at.getUTCSeconds())}` : ""}`;
  };
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const ticks = (chart, _axis, low, high, step) => {
    const shift = ((zero % 86400) + 86400) % 86400;  // whole minutes and hours of that clock
    const found = [];
    for (let at = Math.ceil((low + shift) / step) * step - shift; at <= high; at += step) found.push(at);
    return found;
  };

  // ---- bands and marks ----------------------------------------------------------------------------------------
  const shade = (chart, band, fill) => {
    const left = chart.valToPos(band.began, "x", true);
    const right = Math.max(chart.valToPos(band.ended, "x", true), left + devicePixelRatio);
    const { top, height } = chart.bbox;
    chart.ctx.fillStyle = fill;
    chart.ctx.fillRect(left, top, right - left, height);
  };
  const inside = (chart, draw) => {
    const { left, top, width, height } = chart.bbox;
    chart.ctx.save();
    chart.ctx.beginPath();
    chart.ctx.rect(left, top, width, height);
    chart.ctx.clip();
    draw();
    chart.ctx.restore();
  };
  const troubles = (chart) => inside(chart, () => {
    for (const band of data.bands) {
      if (band.kind === "silence") shade(chart, band, colour("glow"));
      if (band.kind === "asleep") shade(chart, band, colour("sleep"));
    }
  });
  const DASHES = { restart: [3, 3], recovered: [1, 3], end: [], line: [1, 2] };
  const marks = (chart) => inside(chart, () => {
    for (const mark of data.marks) {
      const x = Math.round(chart.valToPos(mark.at, "x", true)) + 0.5;
      const loud = mark.kind === "stall" || mark.kind === "crash";
      chart.ctx.strokeStyle = colour(loud ? "accent" : "faint");
      chart.ctx.lineWidth = loud ? devicePixelRatio : devicePixelRatio / 2;
      chart.ctx.setLineDash((DASHES[mark.kind] || []).map((length) => length * devicePixelRatio));
      chart.ctx.beginPath();
      chart.ctx.moveTo(x, chart.bbox.top);
      chart.ctx.lineTo(x, chart.bbox.top + chart.bbox.height);
      chart.ctx.stroke();
    }
  });
  const phases = (chart) => inside(chart, () => {
    for (const band of data.bands) {
      if (band.kind === "silence") shade(chart, band, colour("accent"));
      else if (band.kind === "asleep") shade(chart, band, colour("paper"));
      else shade(chart, band, colour(band.kind));
    }
  });
  const NAMES = { stall: "stall", crash: "crash", restart: "attempt", recovered: "recovered", end: "end" };
  const flags = (chart) => {
    const context = chart.ctx, ratio = devicePixelRatio;
    context.save();
    context.font = `${11 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "bottom";
    context.textAlign = "left";
    let free = -Infinity;
    for (const mark of data.marks) {
      const x = chart.valToPos(mark.at, "x", true);
      const words = [NAMES[mark.kind], mark.label].filter(Boolean).join(" ");
      const wide = context.measureText(words).width;
      const left = Math.min(x, chart.bbox.left + chart.bbox.width - wide);
      if (!NAMES[mark.kind] || x < chart.bbox.left - 1 || x > chart.bbox.left + chart.bbox.width + 1 || left < free) continue;
      context.fillStyle = colour(mark.kind === "stall" || mark.kind === "crash" ? "accent" : "soft");
      context.fillText(words, left, chart.bbox.top - 3 * ratio);
      free = left + wide + 10 * ratio;
    }
    context.restore();
  };

  // ---- charts ---------------------------------------------------------------------------------------------------
  const narrow = () => lane.clientWidth < 560;
  const whole = { min: 0, max: Math.max(data.seconds, 1e-3) };
  const all = document.getElementById("all");
  const zoomed = (chart) => {
    const { min, max } = chart.scales.x;
    all.hidden = min <= whole.min && max >= whole.max;
  };
  const look = (min, max) => charts.forEach((chart) => chart.setScale("x", { min, max }));
  const nearest = (values, index) => {
    for (let back = index; back >= 0 && index - back < 40; back -= 1) {
      if (values[back] !== null && values[back] !== undefined) return values[back];
    }
    return null;
  };
  const font = () => `12px ${getComputedStyle(document.body).fontFamily}`;
  const axisX = (show) => ({
    show, stroke: () => colour("soft"), font: font(), size: 28, gap: 6, incrs: STEPS, splits: ticks, space: 84,
    grid: { show: false }, ticks: { show: false },
    values: (chart, found, _axis, _space, step) => found.map((at) => {
      const half = step < 60 ? 28 : 18, left = chart.width - 8 - chart.valToPos(at, "x") - (narrow() ? 54 : 66);
      return left < half - 8 ? "" : clock(at, step < 60);  // a time that the edge would cut says nothing
    }),
  });
  const axisY = (show, unit, log) => ({
    show, ...(log ? { splits: decades, filter: (_chart, found) => found } : {}), stroke: () => colour("faint"), font: font(), size: narrow() ? 54 : 66, gap: 8, space: 34,
    grid: { stroke: () => colour("line"), width: 1 }, ticks: { show: false },
    values: (_chart, found) => found.map((value) => (value === null ? "" : worded(value, unit))),
  });
  const common = (element, height) => ({
    width: element.clientWidth, height, legend: { show: false },
    cursor: { sync: { key: "timeline", scales: ["x", null] }, y: false, drag: { x: true, y: false },
      points: { show: false } },
  });
  // A zoom ends where the run does, and a double click shows all of it again.
  const [first, final] = [data.times[0], data.times[data.times.length - 1]];
  const range = (_chart, min, max) => (min === null || max - min <= 0 || (min <= first && max >= final)
    ? [whole.min, whole.max] : [Math.max(whole.min, min), Math.min(whole.max, max)]);
  const decades = (_chart, _axis, low, high) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) found.push(10 ** power);
    return found.filter((value) => value >= low);
  };

  const drawLane = () => new uPlot({
    ...common(lane, 40),
    padding: [18, 8, 0, 0],
    scales: { x: { time: false, range }, y: { range: [0, 1] } },
    axes: [axisX(false), { ...axisY(true, ""), grid: { show: false }, values: () => [] }],
    series: [{}, { show: false }],
    hooks: { drawClear: [phases], draw: [flags], setScale: [(chart, key) => key === "x" && zoomed(chart)] },
  }, [data.times, data.times.map(() => null)], lane);

  const drawPanel = (figure, panel, last) => {
    const output = figure.querySelector("output");
    const resting = output.innerHTML;  // our own words and numbers, written by the template
    const fields = [];
    const live = (chart) => {
      const index = chart.cursor.idx;
      if (index === null || index === undefined) {
        output.innerHTML = resting;
        fields.length = 0;
        return;
      }
      if (!fields.length) {
        output.replaceChildren();
        const when = output.appendChild(document.createElement("span"));
        panel.series.forEach((_series, number) => {
          const span = output.appendChild(document.createElement("span"));
          span.appendChild(document.createElement("i")).className = `n${number}`;
          fields.push(span.appendChild(document.createElement("span")));
        });
        fields.push(when);
      }
      panel.series.forEach((series, number) => {
        const value = nearest(series.values, index);
        fields[number].textContent = `${series.name} ${value === null ? "not known" : worded(value, panel.unit)}`;
      });
      fields[fields.length - 1].textContent = clock(data.times[index], true);
    };
    const log = "log" in figure.dataset;
    return new uPlot({
      ...common(figure, (narrow() ? 84 : 96) + (last ? 28 : 0)),
      padding: [6, 8, last ? 0 : 4, 0],
      scales: {
        x: { time: false, range },
        y: log ? { distr: 3 } : { range: (_chart, min, max) => {
          const low = Math.min(0, min === null ? 0 : min), high = max === null ? 1 : max;
          return panel.key === "loss" && min !== max ? [min, max] : [low, high > low ? high * 1.05 : low + 1];
        } },
      },
      axes: [axisX(last), axisY(true, panel.unit, log)],
      series: [{}, ...panel.series.map((_series, number) => ({
        stroke: () => colour(number ? "second" : "data"), width: number ? 1 : 1.25, spanGaps: panel.key !== "batch",
        points: { show: false },
      }))],
      hooks: { drawClear: [troubles], draw: [marks], setCursor: [live] },
    }, [data.times, ...panel.series.map((series) => series.values)], figure);
  };

  const figures = data.panels.map((panel) => document.querySelector(`[data-panel="${panel.key}"]`));
  const draw = () => {
    charts.splice(0).forEach((chart) => chart.destroy());
    charts.push(drawLane());
    data.panels.forEach((panel, index) => {
      const last = index === data.panels.length - 1;
      figures[index].classList.add("drawn");
      charts.push(drawPanel(figures[index], panel, last));
    });
    document.fonts.ready.then(() => charts.forEach((chart) => chart.redraw(false, true)));
  };
  let width = 0;
  new ResizeObserver(() => {
    if (lane.clientWidth !== width) {
      width = lane.clientWidth;
      draw();
    }
  }).observe(lane);

  all.addEventListener("click", () => look(whole.min, whole.max));
  for (const one of document.querySelectorAll("[data-zoom]")) {
    one.addEventListener("click", () => {
      const [began, seconds] = one.dataset.zoom.split(",").map(Number);
      const margin = Math.max(15, seconds);
      look(Math.max(0, began - data.start - margin), Math.min(whole.max, began - data.start + seconds + margin));
      lane.scrollIntoView({ block: "start", behavior: "smooth" });
    });
  }
})();
