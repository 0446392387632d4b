"use strict";
// Draws the timeline of the data block: one chart a panel, one clock for all of them.  A chart shows the values of the
// data and nothing else: where a value is missing there is no line, and the cursor says so.
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

  // ---- copying ------------------------------------------------------------------------------------------------
  const copied = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* an older way, for a page without https */ }
    const field = document.body.appendChild(document.createElement("textarea"));
    field.value = text;
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  };
  addEventListener("click", async (event) => {
    const one = event.target.closest("[data-copy]");
    if (!one) return;
    const words = one.dataset.words || (one.dataset.words = one.textContent);
    one.textContent = await copied(document.getElementById(one.dataset.copy).textContent) ? "Copied" : "Select and copy it";
    setTimeout(() => { one.textContent = words; }, 1500);
  });

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

  const two = (number) => String(number).padStart(2, "0");
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const DASHES = { restart: [3, 3], recovered: [1, 3], end: [], line: [1, 2] };
  const NAMES = { stall: "stall", crash: "crash", restart: "attempt", recovered: "recovered", end: "end" };
  const INK = ["data", "second", "third", "fourth"];
  const lasting = (seconds) => worded(Math.max(0, seconds), "s");
  let view = null;  // [min, max] that is looked at; null: all of it
  let following = null;

  // Draws what the page holds now; a live report calls it again with each state of the run.
  const mount = () => {
  charts.splice(0).forEach((chart) => chart.destroy());
  if (following) following.disconnect();
  const lane = document.getElementById("lane");
  if (!lane || typeof uPlot === "undefined") return;
  const data = JSON.parse(document.getElementById("data").textContent);

  // ---- the clock of the machine that trained: its offset is added, then time is shown as if it were UTC ------
  const zero = data.start + data.offset;
  const clock = (seconds, fine) => {
    const at = new Date((zero + seconds) * 1000);
    return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}${fine ? `:${two(at.getUTCSeconds())}` : ""}`;
  };
  const ticks = (chart, _axis, low, high, step) => {
    const shift = ((zero % 86400) + 86400) % 86400;  // whole minutes and hours of that clock
    const found = [];
    for (let at = Math.ceil((low + shift) / step) * step - shift; at <= high; at += step) found.push(at);
    return found;
  };

  // ---- what was at a time ---------------------------------------------------------------------------------------
  const bands = (kind) => data.bands.filter((band) => band.kind === kind);
  const silences = bands("silence"), again = bands("redone"), asleep = bands("asleep");
  const phasesOf = data.bands.filter((band) => !["silence", "redone", "asleep"].includes(band.kind));
  const restarts = data.marks.filter((mark) => mark.kind === "restart");
  const inside = (some, at) => some.find((band) => band.began <= at && at < band.ended);
  const newest = (some, at) => some.filter((one) => one.at <= at).pop();
  const phaseNames = Object.fromEntries([...document.querySelectorAll("#lane .key i")].map(
    (one) => [one.className, one.parentElement.textContent]));
  const told = (at) => {
    const silence = inside(silences, at), phase = inside(phasesOf, at), epoch = newest(data.epochs, at);
    const what = silence ? `${silence.number ? `stall ${silence.number}: ` : ""}no progress for ${lasting(at - silence.began)}`
      : inside(asleep, at) ? "asleep" : phase ? phaseNames[phase.kind] : "no process";
    const attempt = restarts.length ? `attempt ${(newest(restarts, at) || { label: "1" }).label}` : "";
    return [clock(at, true), what, inside(again, at) && !silence ? "batches trained again" : "",
      epoch && !silence ? `epoch ${epoch.epoch}` : "", attempt].filter(Boolean);
  };

  // ---- bands and marks ----------------------------------------------------------------------------------------
  const shade = (chart, band, fill, part = [0, 1]) => {
    const left = chart.valToPos(band.began, "x", true);
    const right = Math.max(chart.valToPos(band.ended, "x", true), left + devicePixelRatio);
    const { top, height } = chart.bbox;
    chart.ctx.fillStyle = fill;
    chart.ctx.fillRect(left, top + height * part[0], right - left, height * (part[1] - part[0]));
  };
  const within = (chart, draw) => {
    const { left, top, width, height } = chart.bbox;
    chart.ctx.save();
    chart.ctx.beginPath();
    chart.ctx.rect(left, top, width, height);
    chart.ctx.clip();
    draw();
    chart.ctx.restore();
  };
  const troubles = (chart) => within(chart, () => {
    again.forEach((band) => shade(chart, band, colour("again")));
    silences.forEach((band) => shade(chart, band, colour("glow")));
    asleep.forEach((band) => shade(chart, band, colour("sleep")));
  });
  const marks = (chart) => within(chart, () => {
    const stroke = (at, ink, width, dash, from = 0) => {
      const x = Math.round(chart.valToPos(at, "x", true)) + 0.5, { top, height } = chart.bbox;
      chart.ctx.strokeStyle = colour(ink);
      chart.ctx.lineWidth = width * devicePixelRatio;
      chart.ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
      chart.ctx.beginPath();
      chart.ctx.moveTo(x, top + height * from);
      chart.ctx.lineTo(x, top + height);
      chart.ctx.stroke();
    };
    data.epochs.forEach((epoch) => stroke(epoch.at, "faint", 1, [], 0.93));
    for (const mark of data.marks) {
      const loud = mark.kind === "stall" || mark.kind === "crash";
      stroke(mark.at, loud ? "accent" : "faint", loud ? 1 : 0.5, DASHES[mark.kind] || []);
    }
  });
  const phases = (chart) => within(chart, () => {
    phasesOf.forEach((band) => shade(chart, band, colour(band.kind)));
    again.forEach((band) => shade(chart, band, colour("redone"), [0.65, 1]));
    asleep.forEach((band) => shade(chart, band, colour("paper")));
    silences.forEach((band) => shade(chart, band, colour("accent")));
  });
  // Names above the lane, and epochs below it, as far as there is room.
  const named = (chart, rows, y, baseline) => {
    const context = chart.ctx, ratio = devicePixelRatio, { left: first, width } = chart.bbox;
    context.save();
    context.font = `${11 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = baseline;
    context.textAlign = "left";
    let free = -Infinity;
    for (const [at, words, ink] of rows) {
      const x = chart.valToPos(at, "x", true), wide = context.measureText(words).width;
      const left = Math.max(first, Math.min(x, first + width - wide));
      if (x < first - 1 || x > first + width + 1 || left < free) continue;
      context.fillStyle = colour(ink);
      context.fillText(words, left, y);
      free = left + wide + 10 * ratio;
    }
    context.restore();
  };
  const flags = (chart) => {
    const { top, height } = chart.bbox, ratio = devicePixelRatio;
    const flagged = data.marks.filter((mark) => NAMES[mark.kind]).map((mark) => [
      mark.at, [NAMES[mark.kind], mark.label].filter(Boolean).join(" "),
      mark.kind === "stall" || mark.kind === "crash" ? "accent" : "soft"]);
    named(chart, flagged, top - 3 * ratio, "bottom");
    named(chart, data.epochs.map((one) => [one.at, `epoch ${one.epoch}`, "soft"]), top + height + 3 * ratio, "top");
    marks(chart);
  };

  // ---- charts ---------------------------------------------------------------------------------------------------
  const narrow = () => lane.clientWidth < 560;
  const whole = { min: 0, max: Math.max(data.seconds, 1e-3) };
  const all = document.getElementById("all");
  const zoomed = (chart) => {
    const { min, max } = chart.scales.x;
    all.hidden = min <= whole.min && max >= whole.max;
    view = all.hidden ? null : [min, max];
  };
  // In a batch, because the scale is needed at once.
  const look = (min, max) => charts.forEach((chart) => chart.batch(() => chart.setScale("x", { min, max })));
  const font = () => `12px ${getComputedStyle(document.body).fontFamily}`;
  const ruler = document.createElement("canvas").getContext("2d");
  const measured = (texts) => {
    ruler.font = font();
    return Math.max(0, ...texts.map((text) => ruler.measureText(text).width));
  };
  // All charts have the same room on their left, so that a time is at the same place in each of them.
  const gutter = () => {
    const steps = data.panels.flatMap((panel) => panel.series.flatMap((one) => {
      const most = one.values.reduce((top, value) => Math.max(top, Math.abs(value || 0)), 0);
      return [1, 0.75, 0.5, 0.25].map((part) => worded(most * part, panel.unit));
    }));
    return Math.ceil(Math.max(narrow() ? 48 : 60, measured(steps) + 16));
  };
  const left = gutter();
  const axisX = (show) => ({
    show, stroke: () => colour("soft"), font: font(), size: 28, gap: 6, incrs: STEPS, splits: ticks, space: 84,
    grid: { show: false }, ticks: { show: false },
    values: (chart, found, _axis, _space, step) => found.map((at) => {
      const half = step < 60 ? 28 : 18, right = chart.width - 8 - chart.valToPos(at, "x") - left;
      return right < half - 8 ? "" : clock(at, step < 60);  // a time that the edge would cut says nothing
    }),
  });
  const axisY = (show, unit, log) => ({
    show, ...(log ? { splits: decades, filter: (_chart, found) => found } : {}), stroke: () => colour("soft"),
    font: font(), size: left, gap: 8, space: 34,
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
  const cursorAt = (chart) => {
    const index = chart.cursor.idx;
    return index === null || index === undefined ? null : index;
  };

  const drawLane = () => {
    const output = lane.querySelector("output");
    const live = (chart) => {
      const index = cursorAt(chart);
      output.replaceChildren(...(index === null ? [] : told(data.times[index])).map((words) => {
        const span = document.createElement("span");
        span.textContent = words;
        return span;
      }));
    };
    return new uPlot({
      ...common(lane, 60),
      padding: [18, 8, 16, 0],
      scales: { x: { time: false, range }, y: { range: [0, 1] } },
      axes: [axisX(false), { ...axisY(true, ""), grid: { show: false }, values: () => [] }],
      series: [{}, { show: false }],
      hooks: { drawClear: [phases], draw: [flags], setCursor: [live],
        setScale: [(chart, key) => key === "x" && zoomed(chart)] },
    }, [data.times, data.times.map(() => null)], lane);
  };

  const drawPanel = (figure, panel) => {
    const output = figure.querySelector("output"), last = "axis" in figure.dataset;
    const resting = [...output.childNodes];
    const fields = [];
    const live = (chart) => {
      const index = cursorAt(chart);
      if (index === null) {
        output.replaceChildren(...resting);
        fields.length = 0;
        return;
      }
      if (!fields.length) {
        output.replaceChildren();
        panel.series.forEach((_series, number) => {
          const span = output.appendChild(document.createElement("span"));
          span.appendChild(document.createElement("i")).className = `n${number}`;
          fields.push(span.appendChild(document.createElement("span")));
        });
      }
      const silent = inside(silences, data.times[index]);
      panel.series.forEach((series, number) => {
        const value = series.values[index];
        const none = silent ? "none in the stall" : "not known";
        const known = value !== null && value !== undefined;
        fields[number].textContent = `${series.name} ${known ? worded(value, panel.unit) : none}${known && series.newest && silent ? " (before the stall)" : ""}`;
      });
    };
    const log = "log" in figure.dataset;
    return new uPlot({
      ...common(figure, (narrow() ? 84 : 92) + (last ? 28 : 0)),
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
        stroke: () => colour(INK[number % INK.length]), width: number ? 1 : 1.25, spanGaps: false,
        points: { show: false },
      }))],
      hooks: { drawClear: [troubles], draw: [marks], setCursor: [live] },
    }, [data.times, ...panel.series.map((series) => series.values)], figure);
  };

  const figures = data.panels.map((panel) => document.querySelector(`[data-panel="${panel.key}"]`));
  const draw = () => {
    const kept = view;
    charts.splice(0).forEach((chart) => chart.destroy());
    lane.classList.add("drawn");
    charts.push(drawLane());
    data.panels.forEach((panel, index) => {
      figures[index].classList.add("drawn");
      charts.push(drawPanel(figures[index], panel));
    });
    if (kept) look(...kept);
    document.fonts.ready.then(() => charts.forEach((chart) => chart.redraw(false, true)));
  };
  let width = 0;
  following = new ResizeObserver(() => {
    if (lane.clientWidth !== width) {
      width = lane.clientWidth;
      draw();
    }
  });
  following.observe(lane);

  // ---- keys ---------------------------------------------------------------------------------------------------
  const centre = () => {
    const [chart] = charts, index = cursorAt(chart);
    const { min, max } = chart.scales.x;
    return index === null ? (min + max) / 2 : data.times[index];
  };
  const move = (at) => {
    const [chart] = charts, { min, max } = chart.scales.x;
    const to = Math.max(whole.min, Math.min(whole.max, at));
    if (to < min || to > max) look(...(to < min ? [to, to + max - min] : [to - max + min, to]));
    chart.setCursor({ left: chart.valToPos(to, "x"), top: 5 });
  };
  const magnify = (factor) => {
    const [chart] = charts, { min, max } = chart.scales.x, at = centre(), half = (max - min) * factor / 2;
    const from = Math.max(whole.min, at - half), to = Math.min(whole.max, at + half);
    if (factor > 1 && from === whole.min && to === whole.max) look(whole.min, whole.max);
    else if (to - from > 1) look(from, to);
    move(at);
  };
  const show = (began, seconds) => {
    const margin = Math.max(15, seconds);
    look(Math.max(0, began - margin), Math.min(whole.max, began + seconds + margin));
  };
  const visit = (step) => {
    const at = cursorAt(charts[0]) !== null ? centre() : step > 0 ? -1 : whole.max + 1;
    const sorted = [...silences].sort((a, b) => a.began - b.began);
    const one = step > 0 ? sorted.find((band) => band.began > at) : sorted.filter((band) => band.ended < at).pop();
    if (!one) return;
    show(one.began, one.ended - one.began);
    move((one.began + one.ended) / 2);
  };
  const KEYS = {
    ArrowLeft: () => move(centre() - (charts[0].scales.x.max - charts[0].scales.x.min) / 100),
    ArrowRight: () => move(centre() + (charts[0].scales.x.max - charts[0].scales.x.min) / 100),
    "+": () => magnify(0.5), "=": () => magnify(0.5), "-": () => magnify(2),
    n: () => visit(1), p: () => visit(-1),
    "0": () => look(whole.min, whole.max), Escape: () => look(whole.min, whole.max),
  };
  lane.addEventListener("keydown", (event) => {
    const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || event.altKey || event.ctrlKey || event.metaKey || !charts.length) return;
    action();
    event.preventDefault();
  });
  all.addEventListener("click", () => look(whole.min, whole.max));
  for (const one of document.querySelectorAll("[data-zoom]")) {
    one.addEventListener("click", () => {
      const [began, seconds] = one.dataset.zoom.split(",").map(Number);
      show(began - data.start, seconds);
      lane.scrollIntoView({ block: "start", behavior: "smooth" });
    });
  }
  };
  mount();
  addEventListener("stallguard:changed", mount);
})();
