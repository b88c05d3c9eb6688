#!/usr/bin/env node
// Audits an attention layer written in JavaScript (node >= 18, no packages): probe, run, audit, report.
// usage: audit.mjs [--url URL] [--seed N] [--break NAME]
// Replace layer() by your own implementation; everything else may stay.  Start reading at main().

const BREAKS = {
  scores_unscaled: (step) => { step.scale = () => 1; },
  mask_after_softmax: (step) => { step.maskLate = true; },
  future_leaks: (step) => { step.leak = 1; },
  heads_summed: (step) => { step.join = (rows) => rows[0].map((_, c) => rows.reduce((a, r) => a + r[c], 0)); },
  output_missing: (step) => { step.output = false; },
};

const RIGHT = {scale: (d) => 1 / Math.sqrt(d), maskLate: false, leak: 0, join: (rows) => rows.flat(), output: true};

const dot = (a, b) => a.reduce((sum, x, n) => sum + x * b[n], 0);
// Row x times W, given (in,out), plus b.
const times = (x, W, b) => W[0].map((_, c) => x.reduce((sum, v, r) => sum + v * W[r][c], 0) + (b ? b[c] : 0));
// Head n owns columns n*d ... (n+1)*d-1: [T][h*d] to [h][T][d].
const split = (rows, heads) => Array.from({length: heads}, (_, n) => {
  const d = rows[0].length / heads;
  return rows.map((row) => row.slice(n * d, (n + 1) * d));
});

// May query i of item b read key j?  The rules that this script's probe can hold.
function mayRead(masks, b, i, j, offset, leak) {
  if (masks.causal && j > i + offset + leak)
    return false;
  return !masks.padding || masks.padding.valid[b][j];
}

function softmax(scores, allowed, late) {
  const logits = scores.map((s, j) => (late || allowed[j] ? s : -Infinity));
  const top = Math.max(...logits);
  if (top === -Infinity)
    return logits.map(() => 0);
  const e = logits.map((s) => Math.exp(s - top));
  const total = e.reduce((a, x) => a + x, 0);
  return e.map((x, j) => (late && !allowed[j] ? 0 : x / total));
}

// Q K V S allowed A H Y of multi-head self-attention: this is the part to replace.
function layer(problem, step) {
  const {weights: w, masks = {}, shapes} = problem;
  const out = {Q: [], K: [], V: [], S: [], allowed: [], A: [], H: [], Y: []};
  problem.inputs.X.forEach((X, b) => {
    const [Q, K, V] = ['Q', 'K', 'V'].map((name) =>
      split(X.map((x) => times(x, w[`W_${name}`], w[`b_${name}`])), shapes.heads));
    const S = Q.map((q, h) => q.map((qi) => K[h].map((kj) => dot(qi, kj) * step.scale(qi.length))));
    const allowed = S.map((s) => s.map((row, i) => row.map((_, j) => mayRead(masks, b, i, j, 0, step.leak))));
    const A = S.map((s, h) => s.map((row, i) => softmax(row, allowed[h][i], step.maskLate)));
    const heads = A.map((a, h) => a.map((row) =>
      V[h][0].map((_, c) => row.reduce((sum, x, j) => sum + x * V[h][j][c], 0))));
    const H = X.map((_, i) => step.join(heads.map((head) => head[i])));
    const Y = H.map((row) => (step.output && row.length === w.W_O.length ? times(row, w.W_O, w.b_O) : row));
    Object.entries({Q, K, V, S, allowed, A, H, Y}).forEach(([name, value]) => out[name].push(value));
  });
  return out;
}

async function ask(url, path, body) {
  const answer = await fetch(url + path, {method: 'POST', body: JSON.stringify(body),
    headers: {'content-type': 'application/json'}});
  const value = await answer.json();
  if (!answer.ok)
    throw new Error(`${value.title}: ${value.detail} (${value.pointer ?? path})`);
  return value;
}

const number = (x) => (typeof x === 'number' ? String(Number(x.toPrecision(4))) : String(x ?? ''));

function show(answer) {
  const marks = {correct: 'ok', wrong_here: 'WRONG', inherited: 'follows'};
  console.log(`this JavaScript layer: ${answer.verdict.toUpperCase()}`);
  for (const [name, row] of Object.entries(answer.objects))
    if (row.state !== 'not_given')
      console.log(`  ${name.padEnd(9)} ${marks[row.state].padEnd(9)} ${number(row.local_error)}`);
  const first = answer.first_difference;
  if (first)
    console.log(`first wrong object: ${answer.first_incorrect}, at [${first.index}]: expected ` +
      `${number(first.expected)}, observed ${number(first.observed)}`);
  for (const cause of answer.diagnoses.slice(0, 3))
    console.log(`cause: ${cause.fault} (${cause.object})\n  ${cause.explanation}\n  fix: ${cause.fix}`);
  for (const note of answer.notes)
    console.log(`note: ${note}`);
  for (const companion of answer.companions)
    console.log(`${companion.name.padEnd(20)} ${companion.verdict}; ${companion.rows_alike.rows_compared} rows must ` +
      `be alike, ${companion.rows_alike.rows_that_differ} differ`);
}

function options(list) {
  const given = {'--url': 'http://127.0.0.1:8080', '--seed': '1', '--break': null};
  for (let n = 0; n < list.length; n += 2) {
    if (!(list[n] in given) || list[n + 1] === undefined)
      throw new Error(`usage: audit.mjs [--url URL] [--seed N] [--break ${Object.keys(BREAKS).join('|')}]`);
    given[list[n]] = list[n + 1];
  }
  if (given['--break'] && !BREAKS[given['--break']])
    throw new Error(`--break takes ${Object.keys(BREAKS).join(', ')}`);
  return given;
}

async function main() {
  const given = options(process.argv.slice(2));
  const url = given['--url'];
  const step = {...RIGHT};
  BREAKS[given['--break']]?.(step);
  const probe = await ask(url, '/v1/probe', {seed: Number(given['--seed']), purpose: ['projections'],
    shapes: {T: 5, heads: 3}, masks: {causal: true, padding: {valid: [[true, true, true, true, true],
      [false, false, true, true, true]]}}});
  // This layer has no cache and no second sequence: problems with either are left out.
  const fits = probe.companions.filter((c) => !c.problem.inputs.past && !c.problem.inputs.X_kv);
  const companions = fits.map((c) => ({name: c.name, of: c.of ?? 'main', problem: c.problem,
    candidate: layer(c.problem, step)}));
  const answer = await ask(url, '/v1/audit',
    {...probe.problem, candidate: layer(probe.problem, step), companions});
  show(answer);
  return [answer, ...answer.companions].every((part) => part.verdict === 'correct') ? 0 : 1;
}

main().then((code) => process.exit(code), (error) => {
  console.error(error.message);
  process.exit(2);
});
