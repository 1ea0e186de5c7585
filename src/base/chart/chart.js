'use strict';
(() => {
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const number = v => v == null ? '–' : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString('en').replaceAll(',', '\u202f') : String(+v.toPrecision(4));
const short = v => Math.abs(v) >= 1e9 ? +(v / 1e9).toPrecision(4) + 'G' : Math.abs(v) >= 1e6 ? +(v / 1e6).toPrecision(4) + 'M' : Math.abs(v) >= 1e4 ? +(v / 1e3).toPrecision(4) + 'k' : String(+v.toPrecision(6));
const plots = new Map(); // the uPlot object in each box

// draw draws the plot of a box anew, from the numbers in the box. The argument was is the plot that
// the box had before; its zoom and its hidden curves stay.
function draw(box, was) {
  const spec = JSON.parse(box.querySelector('script').textContent);
  const series = [{label: spec.x, value: (u, v) => v == null ? '–' : spec.atLabels ? spec.atLabels[spec.at.indexOf(v)] ?? number(v) : number(v)}];
  const tables = [], bands = [], sides = [], drawn = [];
  for (const c of spec.curves) {
    const name = c.names.length > 3 ? `${c.names[0]} = ${c.names.length - 1} more` : c.names.join(' = ');
    const stroke = () => c.free ? css('--text') : css('--c' + c.color % 9), at = series.length;
    const round = c.dashed ? 1 : Math.floor(c.color / 9);
    const single = c.px.length === 1;
    drawn.push([at, c]);
    series.push({label: name + c.end, stroke, width: c.free ? 1 : 2, dash: [[], [6, 4], [2, 3], [9, 3, 2, 3]][Math.min(3, round)],
      spanGaps: true, value: (u, v) => number(v), show: was?.series.find(s => s.label === name + c.end)?.show ?? true,
      points: {show: single || !c.dashed && !c.free && c.px.length <= 40, size: 6, stroke, fill: c.open ? () => css('--back') : stroke}});
    const columns = [c.px, c.py];
    if (c.low) {
      columns.push(c.low, c.high);
      for (const label of ['', '']) series.push({label, class: 'aside', stroke: 'transparent', width: 0, points: {show: false}, show: series[at].show});
      bands.push({series: [at + 2, at + 1], fill: () => stroke() + '33'});
      sides[at] = [at + 1, at + 2];
    }
    tables.push(columns);
  }
  const data = uPlot.join(tables);
  const space = lo => (u, from, to) => {
    if (from == null) return [0, 1];
    if (spec.logY) return [from / 1.1, to * 1.2];
    const pad = (to - from || Math.abs(to) || 1) * 0.06;
    return [lo ? Math.min(0, from) : from - pad, to + pad];
  };
  // nearest finds the point of a curve that is closest to the pointer. It has to search, because
  // each curve has values of x of its own.
  const nearest = (u, s, i) => {
    for (let d = 0; d < u.data[0].length; d++)
      for (const k of [i - d, i + d]) if (u.data[s][k] != null) return k;
    return i;
  };
  const words = u => { // draws words at points, and marks above the axis
    const ctx = u.ctx, px = devicePixelRatio;
    ctx.save();
    ctx.font = `${12 * px}px system-ui, sans-serif`;
    ctx.textAlign = 'center';
    for (const [at, c] of drawn) {
      if (!u.series[at].show) continue;
      ctx.fillStyle = css('--text');
      (c.points || []).forEach((w, i) => ctx.fillText(w, u.valToPos(c.px[i], 'x', true), u.valToPos(c.py[i], 'y', true) - 9 * px));
      ctx.fillStyle = css('--c' + c.color % 9);
      for (const v of c.marks || []) {
        const x = u.valToPos(v, 'x', true);
        if (x >= u.bbox.left && x <= u.bbox.left + u.bbox.width) ctx.fillRect(x, u.bbox.top + u.bbox.height - 8 * px, px, 8 * px);
      }
    }
    ctx.restore();
  };
  const axis = {stroke: () => css('--soft'), font: '12px system-ui, sans-serif', labelFont: '12px system-ui, sans-serif', labelSize: 18,
    grid: {stroke: () => css('--rule'), width: 0.7}, ticks: {stroke: () => css('--rule'), size: 5}};
  const xs = {...axis, label: spec.x, size: 32};
  if (spec.at) {
    xs.splits = () => spec.at;
    xs.values = (u, vs) => vs.map((v, i) => spec.atLabels ? spec.atLabels[i] : short(v));
    xs.filter = (u, vs) => vs;
  } else xs.values = (u, vs) => vs.map(v => v == null || spec.whole && v % 1 ? '' : short(v));
  const u = new uPlot({
    width: box.clientWidth || 600, height: 280, series, bands,
    scales: {x: {time: false, distr: spec.logX ? 3 : 1, range: (u, lo, hi) => spec.logX ? [lo / 1.1, hi * 1.1] : lo === hi ? [lo - 1, hi + 1] : [lo, hi]},
      y: {distr: spec.logY ? 3 : 1, range: space(spec.zero)}},
    axes: [xs, {...axis, label: spec.y, values: (u, vs) => vs.map(v => v == null ? '' : short(v)),
      size: (u, vs) => 16 + 7 * Math.max(1, ...(vs || []).map(v => String(v).length))}],
    focus: {alpha: 0.3}, cursor: {focus: {prox: 24}, dataIdx: nearest, drag: {x: true, y: false}},
    hooks: {draw: [words], setSeries: [(u, i, o) => { if (o.show != null) for (const k of sides[i] || []) u.setSeries(k, {show: o.show}); }]},
  }, data, box);
  if (was && was.zoomed) u.setScale('x', was.zoomed);
  u.over.title = 'drag to zoom, double-click for all';
  for (const name of u.root.querySelectorAll('.u-legend tr:not(.aside) th')) {
    name.tabIndex = 0;
    name.title = 'click: switch off or on; with Ctrl: alone';
    name.onkeydown = e => e.key === 'Enter' && name.click();
  }
  if (was) was.destroy();
  plots.set(box, u);
}

const sizes = new ResizeObserver(all => requestAnimationFrame(() => {
  for (const {target} of all) {
    const u = plots.get(target), width = target.clientWidth;
    if (width && !u) draw(target);
    else if (width && u.width !== width) u.setSize({width, height: 280});
  }
}));

// sort orders a table by the column of a header: by the first number of its cells, or by their words.
function sort(head) {
  const body = head.closest('table').tBodies[0], at = head.cellIndex, up = head.getAttribute('aria-sort') === 'descending';
  const units = {k: 1e3, M: 1e6, G: 1e9};
  const key = row => {
    const text = row.cells[at].textContent.replaceAll('\u202f', ''), m = /^-?\d+(\.\d+)?(e[-+]?\d+)?/.exec(text);
    return m ? +m[0] * (units[text[m[0].length]] || 1) : text;
  };
  const rank = v => typeof v === 'number' ? 1 : v === '–' ? 2 : 0;
  for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
  const rows = [...body.rows].map(r => [key(r), r]);
  rows.sort(([a], [b]) => rank(a) - rank(b) || (typeof a === 'number' ? a - b : a.localeCompare(b)) * (up ? 1 : -1));
  for (const [, r] of rows) body.append(r);
}

function watch(root) {
  for (const box of root.querySelectorAll('.curves')) {
    if (box.clientWidth) draw(box);
    sizes.observe(box);
  }
}
const redraw = () => plots.forEach(u => u.redraw());

// follow keeps the page up to date with what the server shows. Zoom, hidden curves and open
// elements stay as they are. If an answer fails, for example because a file is half written, follow
// asks again.
async function follow() {
  let text = '';
  for (;;) {
    await new Promise(done => setTimeout(done, 2000));
    try {
      const a = await fetch(location.href, {cache: 'no-store'});
      if (!a.ok) continue;
      const now = await a.text();
      if (now !== text) take(new DOMParser().parseFromString(now, 'text/html'));
      text = now;
    } catch (e) { console.warn(e); }
  }
}

// take shows another page in place of this one.
function take(page) {
  const ids = d => [...d.querySelectorAll('main [id]')].map(e => e.id).join();
  if (ids(page) !== ids(document)) {
    const open = [...document.querySelectorAll('details[open][id]')].map(e => e.id);
    plots.forEach(u => u.destroy());
    plots.clear();
    document.querySelector('main').replaceWith(document.adoptNode(page.querySelector('main')));
    for (const id of open) document.getElementById(id)?.setAttribute('open', '');
    watch(document);
    return;
  }
  for (const fresh of page.querySelectorAll('main [id]')) {
    const old = document.getElementById(fresh.id);
    for (const part of ['h2', 'summary', '.figures', '.wide', '.bars', '.note']) {
      const a = old.querySelector(part), b = fresh.querySelector(part);
      if (a && b && a.innerHTML !== b.innerHTML) a.replaceWith(document.adoptNode(b));
    }
    const box = old.querySelector('.curves'), numbers = fresh.querySelector('.curves script');
    if (!box || !numbers || box.querySelector('script').textContent === numbers.textContent) continue;
    box.querySelector('script').textContent = numbers.textContent;
    const u = plots.get(box);
    if (!u) continue;
    const {min, max} = u.scales.x, xs = u.data[0];
    if (min > xs[0] || max < xs[xs.length - 1]) u.zoomed = {min, max};
    draw(box, u);
  }
}

document.addEventListener('DOMContentLoaded', () => {
  watch(document);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  document.addEventListener('click', e => {
    const head = e.target.closest('table.sorts thead th'), copy = e.target.closest('button.copy');
    if (head) sort(head);
    if (copy) navigator.clipboard?.writeText(copy.parentNode.querySelector('pre').textContent).then(() => { copy.textContent = 'copied'; });
  });
  let closed = [];
  addEventListener('beforeprint', () => {
    closed = [...document.querySelectorAll('details:not([open]):not(.only)')];
    for (const d of closed) d.open = true;
    document.documentElement.classList.add('paper');
    plots.forEach(u => { if (u.width > 640) u.setSize({width: 640, height: 280}); });
    redraw();
  });
  addEventListener('afterprint', () => {
    for (const d of closed) d.open = false;
    document.documentElement.classList.remove('paper');
    plots.forEach((u, box) => u.setSize({width: box.clientWidth || 640, height: 280}));
    redraw();
  });
  if (document.body.dataset.live) follow();
});
})();
