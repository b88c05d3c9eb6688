// An option that is accepted is used, or refused: every field of a request in openapi.yaml is changed
// once, and the answer must change with it or the change be refused.  A field of the contract without
// a row in CHANGES fails, and so does a row without a field.
// Not here: whether answers are right.  Start reading at CHANGES.

const init = (kind, seed, shape) => ({init: kind, seed, ...(shape ? {shape} : {})});
const normal = (seed, ...shape) => init('normal', seed, shape.length ? shape : undefined);
const WEIGHTS = {W_Q: normal(1), W_K: normal(2), W_V: normal(3), W_O: normal(4)};

// Bases; a row may change a field that its base holds, or add one.
const HEADS = {shapes: {B: 2, T: 5, d_model: 6, d_k: 4, d_v: 3, heads: 4, kv_heads: 2},
  inputs: {X: normal(5)}, weights: WEIGHTS, return: 'all'};
const SQUARE = {shapes: {T: 3, d_model: 4, d_k: 4, d_v: 4}, inputs: {X: normal(5)}, weights: WEIGHTS};
const CROSS = {shapes: {T: 3, T_kv: 5, d_model: 4, d_k: 2, d_v: 2}, weights: WEIGHTS,
  inputs: {X: normal(5), X_kv: normal(6)}};
const PROJECTED = {shapes: {heads: 2}, inputs: {Q: normal(1, 1, 2, 3, 4), K: normal(2, 1, 2, 5, 4),
  V: normal(3, 1, 2, 5, 3)}};
const PAST = {...PROJECTED, inputs: {...PROJECTED.inputs,
  past: {K: normal(7, 1, 2, 2, 4), V: normal(8, 1, 2, 2, 3)}}};
const with_ = (base, fields) => ({...base, ...fields});
const ADDITIVE = with_(HEADS, {score: {function: 'additive', v_a: [1, -1, 2, 0.5]}});
const ROPE = with_(HEADS, {position: {rope: {layout: 'half', base: 100, q: [0, 1, 2, 3, 4], k: [0, 1, 2, 3, 4]}}});
const CAUSAL = with_(PROJECTED, {masks: {causal: {alignment: 'top_left'}}});
const DOCUMENTS = with_(HEADS, {masks: {documents: {ids: [[0, 0, 1, 1, 1], [0, 0, 0, 1, 1]], next_id: [1, 1]}}});
const BY_LENGTHS = with_(HEADS, {masks: {documents: {lengths: [[2, 3], [1, 4]]}}});
const BY_CU = with_(SQUARE, {masks: {documents: {cu_seqlens: [0, 1, 3]}}});
const EMPTY = with_(SQUARE, {masks: {allowed: [[true, true, true], [false, false, false], [true, false, true]]}});
const ablated = (edit) => with_(HEADS, {ablations: [edit]});
const NOISE = ablated({target: 'W_V', change: 'noise', std: 0.5, seed: 1});
const GRADIENTS = with_(SQUARE, {gradients: {of: 'Y', cotangent: 'ones', with_respect_to: ['dX'], check: false}});
const TRACE = with_(HEADS, {traces: [{batch: 0, head: 0, query: 0}]});
const pairs = (n, off) => Array.from({length: n}, (_, i) => Array.from({length: n}, (_, j) => (i + j) % n !== off));

// path of the contract: [base, value]; "*" is any element of a list.
const CHANGES = {
  '/shapes/B': [HEADS, 3], '/shapes/T': [HEADS, 6], '/shapes/T_kv': [CROSS, 6],
  '/shapes/d_model': [HEADS, 7], '/shapes/d_k': [HEADS, 6], '/shapes/d_v': [HEADS, 5],
  '/shapes/heads': [HEADS, 2], '/shapes/kv_heads': [HEADS, 1],
  '/dtype': [HEADS, 'float32'],
  '/inputs/X': [HEADS, normal(9)], '/inputs/X_kv': [CROSS, normal(9)],
  '/inputs/Q': [PROJECTED, normal(9, 1, 2, 3, 4)], '/inputs/K': [PROJECTED, normal(9, 1, 2, 5, 4)],
  '/inputs/V': [PROJECTED, normal(9, 1, 2, 5, 3)],
  '/inputs/past/K': [PAST, normal(9, 1, 2, 2, 4)], '/inputs/past/V': [PAST, normal(9, 1, 2, 2, 3)],
  '/weights/W_Q': [HEADS, normal(9)], '/weights/W_K': [HEADS, normal(9)],
  '/weights/W_V': [HEADS, normal(9)], '/weights/W_O': [HEADS, null],
  '/weights/b_Q': [HEADS, normal(9)], '/weights/b_K': [HEADS, normal(9)],
  '/weights/b_V': [HEADS, normal(9)], '/weights/b_O': [HEADS, normal(9)],
  '/weights/convention': [SQUARE, 'torch_linear'],
  '/score/function': [ADDITIVE, 'dot_product'],
  '/score/scale': [HEADS, 0.7], '/score/temperature': [HEADS, 2], '/score/softcap': [HEADS, 1.5],
  '/score/v_a': [ADDITIVE, [1, 2, 3, 4]],
  '/position/rope/layout': [ROPE, 'interleaved'], '/position/rope/base': [ROPE, 50],
  '/position/rope/q': [ROPE, [0, 1, 2, 3, 9]], '/position/rope/k': [ROPE, [0, 1, 2, 3, 9]],
  '/position/alibi/slopes': [with_(HEADS, {position: {alibi: {slopes: 'standard'}}}), [1, 2, 3, 4]],
  '/sink': [HEADS, [0.5, 1, 0, -1]],
  '/masks/causal': [HEADS, true], '/masks/causal/alignment': [CAUSAL, 'bottom_right'],
  '/masks/padding/lengths': [with_(HEADS, {masks: {padding: {lengths: [5, 3]}}}), [4, 3]],
  '/masks/padding/valid': [with_(SQUARE, {masks: {padding: {valid: [[true, true, true]]}}}), [[true, true, false]]],
  '/masks/documents/ids': [DOCUMENTS, [[0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]],
  '/masks/documents/lengths': [BY_LENGTHS, [[3, 2], [1, 4]]],
  '/masks/documents/cu_seqlens': [BY_CU, [0, 2, 3]],
  '/masks/documents/next_id': [DOCUMENTS, [2, 1]],
  '/masks/window/left': [with_(HEADS, {masks: {window: {left: 1, right: 1}}}), 2],
  '/masks/window/right': [with_(HEADS, {masks: {window: {left: 1, right: 1}}}), -1],
  '/masks/allowed': [SQUARE, pairs(3, 0)], '/masks/blocked': [SQUARE, pairs(3, 0).map((r) => r.map((x) => !x))],
  '/masks/additive': [SQUARE, [[0.5, 1, 2], [0, 3, 1], [2, 2, '-Infinity']]],
  '/masks/convention': [EMPTY, 'torch.sdpa'],
  '/empty_rows': [EMPTY, 'uniform'],
  '/ablations/*/target': [ablated({target: 'W_V', change: 'zero'}), 'W_Q'],
  '/ablations/*/change': [ablated({target: 'W_V', change: 'zero'}), 'negate'],
  '/ablations/*/index': [ablated({target: 'head', change: 'zero', index: 0}), 1],
  '/ablations/*/query': [ablated({target: 'edge', change: 'remove', query: 2, key: 0}), 3],
  '/ablations/*/key': [ablated({target: 'edge', change: 'remove', query: 2, key: 0}), 1],
  '/ablations/*/by': [ablated({target: 'W_V', change: 'scale', by: 2}), 3],
  '/ablations/*/std': [NOISE, 0.25], '/ablations/*/seed': [NOISE, 2],
  '/ablations/*/with': [ablated({target: 'W_V', change: 'replace', with: normal(9, 6, 6)}), normal(8, 6, 6)],
  '/ablations/*/return': [ablated({target: 'W_V', change: 'zero'}), 'delta'],
  '/gradients/of': [with_(SQUARE, {gradients: {}}), 'H'], '/gradients/cotangent': [GRADIENTS, normal(9)],
  '/gradients/with_respect_to': [GRADIENTS, ['dX', 'dW_Q']], '/gradients/check': [GRADIENTS, true],
  '/traces/*/batch': [TRACE, 1], '/traces/*/head': [TRACE, 1], '/traces/*/query': [TRACE, 1],
  '/return': [HEADS, ['Y']], '/audit': [HEADS, 'full'], '/inject': [HEADS, 'scale_missing'],
  '/inject/fault': [with_(HEADS, {inject: {fault: 'scale_missing'}}), 'scale_other'],
  '/inject/parameter': [with_(HEADS, {inject: {fault: 'scale_other', parameter: 2}}), 3],
  '/inject/seed': [with_(HEADS, {inject: {fault: 'dropout_in_eval', seed: 1}}), 2],
  '/path': [with_(HEADS, {return: ['Y']}), 'dense'], '/encoding': [HEADS, 'flat'],
};

// Tensors have their own forms, which the case folders test: a field that takes one is a leaf.
const TENSOR_SCHEMAS = /(Tensor|AnyNumbers|WholeNumbers|Numbers|Booleans)$/;

/** Paths of the fields that a schema knows, down to values and tensors. */
export function fieldsOf(document, schema, path = '', found = new Set()) {
  const name = schema.$ref?.split('/').pop();
  if (name) schema = document.components.schemas[name];
  const branches = [...(schema.oneOf ?? []), ...(schema.anyOf ?? []), ...(schema.allOf ?? [])];
  const before = found.size;
  if (!(name && TENSOR_SCHEMAS.test(name))) {
    for (const branch of branches) fieldsOf(document, branch, path, found);
    for (const [key, value] of Object.entries(schema.properties ?? {}))
      fieldsOf(document, value, `${path}/${key}`, found);
    const items = schema.items?.$ref?.split('/').pop();
    if (!(items && TENSOR_SCHEMAS.test(items)) && (schema.items?.$ref || schema.items?.properties || schema.items?.anyOf || schema.items?.oneOf))
      fieldsOf(document, schema.items, path.endsWith('/*') ? path : `${path}/*`, found);
  }
  if (found.size === before && path && !schema.properties && schema.type !== 'array') found.add(path);
  if (found.size === before && path && !path.endsWith('/*')) found.add(path);
  return found;
}

function changed(base, path, value) {
  const request = structuredClone(base);
  const keys = path.slice(1).split('/').map((key) => (key === '*' ? 0 : key));
  let at = request;
  for (const key of keys.slice(0, -1)) at = at[key] ??= {};
  at[keys.at(-1)] = value;
  return request;
}

function comparable(text) {
  const {request_id, timing_ms, ...answer} = JSON.parse(text);
  return JSON.stringify(answer);
}

/** Sends base and change for every field; report(name, problem or null). */
export async function fields(document, post, report) {
  const known = [...new Set([...fieldsOf(document, document.components.schemas.AttentionRequest)]
    .map((path) => path.replace(/\/\*$/, '')))];
  const rows = Object.keys(CHANGES);
  for (const path of known.filter((p) => !rows.includes(p)))
    report(`field ${path}`, 'no row of CHANGES changes it');
  for (const [path, [base, value]] of Object.entries(CHANGES)) {
    if (!known.includes(path)) { report(`field ${path}`, 'the contract does not know it'); continue; }
    const before = await post(base), after = await post(changed(base, path, value));
    const refused = after.status >= 400 && after.status < 500;
    report(`field ${path}`, before.status !== 200 ? `the base is refused: ${before.text.slice(0, 300)}`
      : !refused && after.status !== 200 ? `status ${after.status}`
        : !refused && comparable(before.text) === comparable(after.text) ? 'accepted, and nothing changed' : null);
  }
}
