// Requests made from lists: every choice of every field once, and one request an error.
// Not here: how they are sent (run.mjs).  Start reading at requests().

const SEEDED = (seed) => ({init: 'xavier_uniform', seed});
const WEIGHTS = {W_Q: SEEDED(1), W_K: SEEDED(2), W_V: SEEDED(3), W_O: SEEDED(4)};
const BASE = {
  shapes: {B: 2, T: 5, d_model: 7, d_k: 4, d_v: 6, heads: 4, kv_heads: 2},
  inputs: {X: {init: 'normal', seed: 5}},
  weights: WEIGHTS,
};
const ONE = {
  shapes: {T: 3, d_model: 4, d_k: 2, d_v: 2},
  inputs: {X: [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]]},
  weights: WEIGHTS,
};
const CROSS = {
  shapes: {T: 3, T_kv: 5, d_model: 7, d_k: 4, d_v: 6},
  inputs: {X: {init: 'normal', seed: 5}, X_kv: {init: 'normal', seed: 6, shape: [5, 3]}},
  weights: WEIGHTS,
};
const PROJECTED = {
  inputs: {Q: [[1, 0], [0, 1]], K: [[0, 1], [1, 0]], V: [[1, 2], [3, 4]]},
};
const TENSORS = ['Q_pre', 'K_pre', 'Q', 'K', 'V', 'S_raw', 'S', 'M', 'allowed', 'S_masked', 'A', 'lse',
  'contributions', 'H_heads', 'H', 'Y', 'present_K', 'present_V'];

const f64 = (...numbers) => Buffer.from(new Float64Array(numbers).buffer).toString('base64');

const EVERYTHING = {
  ...BASE,
  dtype: 'float32',
  position: {rope: {layout: 'interleaved', base: 100}, alibi: {slopes: 'standard'}},
  sink: [0.5, -1, 0, 1],
  score: {temperature: 1.5, softcap: 3},
  masks: {causal: true, padding: {lengths: [5, 3]}, documents: {ids: [[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]],
    next_id: [1, 3]}, window: {left: 2, right: 0}},
  return: TENSORS,
  ablations: [{target: 'W_V', change: 'zero'},
    [{target: 'W_Q', change: 'scale', by: 2}, {target: 'masks.causal', change: 'remove'}],
    {target: 'head', change: 'zero', index: 1, return: 'delta'}],
  gradients: {check: true},
  traces: [{batch: 1, head: 3, query: 4}],
};

const VALID = {
  'everything asked': EVERYTHING,
  'full audit': {...BASE, audit: 'full', masks: {causal: true}},
  'audit off': {...BASE, audit: 'off'},
  'return none': {...BASE, return: 'none'},
  'return all': {...BASE, return: 'all'},
  'tiled': {...BASE, path: 'tiled', return: ['Y']},
  'dense': {...BASE, path: 'dense', return: ['Y']},
  'cross-attention': CROSS,
  'projected': PROJECTED,
  'projected, gradients of A': {...PROJECTED, gradients: {of: 'A'}},
  'gradients in the orientation given': {...ONE, gradients: {with_respect_to: ['dW_Q', 'dX'], check: true},
    weights: {W_Q: [[1, 0, 1, 0], [0, 1, 0, 2]], W_K: [[1, 1, 0, 0], [0, 1, 1, 0]],
      W_V: [[1, 0, 1, 0], [0, 1, 0, 1]], W_O: [[1, 0], [0, 1], [1, 1], [2, 0]], convention: 'torch_linear'}},
  'no output projection': {...ONE, weights: {...WEIGHTS, W_O: null}},
  'flat input': {...ONE, inputs: {X: {shape: [3, 4], data: [1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0]}}},
  'base64 input': {...ONE, inputs: {X: {shape: [3, 4], dtype: 'float64',
    base64: f64(1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0)}}},
  'overflow inside the layer': {...PROJECTED, inputs: {...PROJECTED.inputs, Q: [[1e200, 0], [0, 1e200]],
    K: [[1e200, 1], [1, 1e200]]}},
  'all rows empty': {...PROJECTED, masks: {blocked: [[true, true], [true, true]]}, return: 'all'},
  'additive with -Infinity': {...PROJECTED, masks: {additive: [[0, '-Infinity'], [1, 0]]}},
  'additive that looks boolean': {...PROJECTED, masks: {additive: [[0, 1], [1, 0]]}},
};
for (const encoding of ['nested', 'flat', 'base64'])
  for (const dtype of ['float64', 'float32'])
    VALID[`${encoding} ${dtype}`] = {...EVERYTHING, encoding, dtype};
for (const rule of ['zero', 'nan', 'uniform'])
  VALID[`empty rows ${rule}`] = {...PROJECTED, masks: {allowed: [[true, false], [false, false]]},
    empty_rows: rule, return: 'all', traces: [{query: 1}]};
for (const init of ['zeros', 'ones', 'identity', 'normal', 'uniform', 'xavier_uniform'])
  VALID[`init ${init}`] = {...ONE, inputs: {X: {init, seed: 3}}};
for (const convention of ['torch.sdpa', 'torch.mha', 'onnx.23', 'onnx.24', 'keras.mha', 'flash_attn'])
  VALID[`convention ${convention}`] = {...ONE, masks: {convention, causal: true}};

// name: [status, body]
const REFUSED = {
  'empty body': [400, ''],
  'not JSON': [400, '{"inputs":'],
  'a bare NaN': [400, '{"inputs":{"X":[[NaN]]}}'],
  'not an object': [400, '[1]'],
  'a name twice': [400, '{"dtype":"float64","dtype":"float32"}'],
  'too large a number': [400, '{"inputs":{"Q":[[1e400]],"K":[[1]],"V":[[1]]}}'],
  'an unknown field': [422, {...ONE, mask: {causal: true}}],
  'an unknown rule': [422, {...ONE, masks: {casual: true}}],
  'an unknown choice': [422, {...ONE, dtype: 'float16'}],
  'an unknown tensor': [422, {...ONE, return: ['Z']}],
  'an unknown fault': [422, {...ONE, inject: 'none'}],
  'no inputs': [422, {shapes: ONE.shapes}],
  'ragged rows': [422, {...ONE, inputs: {X: [[1, 0, 1, 0], [1]]}}],
  'a wrong shape': [422, {...ONE, weights: {...WEIGHTS, W_Q: [[1, 2]]}}],
  'heads that do not divide': [422, {...BASE, shapes: {...BASE.shapes, kv_heads: 3}}],
  'an ambiguous alignment': [422, {...CROSS, masks: {causal: true}}],
  'an odd width for RoPE': [422, {...BASE, shapes: {...BASE.shapes, d_k: 3}, position: {rope: {}}}],
  'an empty row that is an error': [422, {...PROJECTED, masks: {blocked: [[true, true], [true, true]]},
    empty_rows: 'error'}],
  'a trace outside': [422, {...ONE, traces: [{query: 3}]}],
  'ablations of a wrong layer': [422, {...ONE, inject: 'scale_missing',
    ablations: [{target: 'W_V', change: 'zero'}]}],
  'Y without W_O': [422, {...PROJECTED, return: ['Y']}],
  'a score matrix of the tiled path': [422, {...ONE, path: 'tiled', return: ['S']}],
  'sizes over the limit': [413, {...ONE, shapes: {T: 3000000, d_model: 4, d_k: 2, d_v: 2},
    inputs: {X: {init: 'normal', seed: 1}}}],
};

const PLANS = {
  'sizes alone': {shapes: {T: 1024, d_model: 64, d_k: 64, d_v: 64}, masks: {causal: true}},
  'heads and a batch': {shapes: {B: 4, T: 128, d_model: 32, d_k: 8, d_v: 8, heads: 4, kv_heads: 2}},
  'what does not fit': {shapes: {T: 3000000, d_model: 64, d_k: 64, d_v: 64}},
  'tiled': {shapes: {T: 4096, d_model: 64, d_k: 64, d_v: 64}, return: ['Y']},
  'everything': EVERYTHING,
  'with tensors': ONE,
};

const JUDGED = {...PROJECTED, candidate: {S: [[0, 1], [1, 0]]}};
const bf16 = (...numbers) => Buffer.from(Uint16Array.from(numbers, (x) =>
  new Uint32Array(Float32Array.of(x).buffer)[0] >>> 16).buffer).toString('base64');

// Candidates right, wrong, of wrong shape, of other numbers; refused ones follow.
const AUDITS = {
  'scale missing': JUDGED,
  'a place and no cause': {...PROJECTED, candidate: {S: [[0.3, 0.2], [0.1, 7]], A: [[0.5, 0.5], [0.5, 0.5]]}},
  'not a number': {...PROJECTED, candidate: {A: [['NaN', 1], ['Infinity', '-Infinity']]}},
  'a wrong shape': {...PROJECTED, candidate: {S: [[[0, 1], [1, 0]]], H: [[1, 2, 3], [4, 5, 6]]}},
  'booleans': {...PROJECTED, masks: {causal: true}, candidate: {allowed: [[true, true], [true, true]]}},
  'bfloat16': {...PROJECTED, candidate: {S: {shape: [2, 2], dtype: 'bfloat16', base64: bf16(0, 0.7071, 0.7071, 0)}}},
  'own tolerance': {...JUDGED, candidate_dtype: 'float16', tolerance: {rtol: 0, atol: 1}},
  'right tensors as well': {...JUDGED, return: ['S', 'H'], encoding: 'flat', audit: 'full'},
  'gradients': {...ONE, gradients: {}, candidate: {dX: [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
    dW_Q: [[1, 2]]}},
  'a batch with heads': {...BASE, masks: {causal: true}, candidate: {Y: {init: 'zeros'}, A: {init: 'ones'}}},
  'companions': {...JUDGED, companions: [
    {name: 'the same', problem: PROJECTED, candidate: {H: [[1, 2], [3, 4]]}},
    {name: 'again', of: 'the same', problem: PROJECTED, candidate: {H: [[1, 2], [3, 5]]}}]},
};
const AUDITS_REFUSED = {
  'no candidate': [422, PROJECTED],
  'an empty candidate': [422, {...PROJECTED, candidate: {}}],
  'an unknown tensor': [422, {...PROJECTED, candidate: {T: [[1]]}}],
  'an ablation': [422, {...JUDGED, ablations: []}],
  'a fault': [422, {...JUDGED, inject: 'scale_missing'}],
  'an encoding of nothing': [422, {...JUDGED, encoding: 'flat'}],
  'a sampled audit': [422, {...JUDGED, audit: 'sampled'}],
  'a gradient of nothing': [422, {...PROJECTED, candidate: {dQ: [[1, 0], [0, 1]]}}],
  'a negative tolerance': [422, {...JUDGED, tolerance: {rtol: -1}}],
  'numbers as booleans': [422, {...PROJECTED, candidate: {allowed: [[1, 1], [1, 1]]}}],
  'a companion of nobody': [422, {...JUDGED, companions: [{name: 'a', of: 'b', problem: PROJECTED,
    candidate: {S: [[0, 1], [1, 0]]}}]}],
  'not JSON': [400, '{'],
};
const PROBES = {
  'everything': {},
  'own sizes': {shapes: {T: 3, d_k: 1, heads: 2}, seed: 9},
  'more keys': {shapes: {T: 2, T_kv: 6}},
  'fewer keys': {shapes: {T: 6, T_kv: 2, B: 1}},
  'own masks': {masks: {causal: true, window: {left: 1, right: 0}}},
  'own positions': {position: {rope: {layout: 'half', base: 100}, alibi: {slopes: 'standard'}}},
};
for (const purpose of ['general', 'projections', 'scores', 'masks', 'softmax', 'heads', 'positions', 'cache',
  'packing', 'gradients'])
  PROBES[purpose] = {purpose: [purpose]};
const PROBES_REFUSED = {
  'an unknown purpose': [422, {purpose: ['fun']}],
  'no purpose': [422, {purpose: []}],
  'a size beyond': [422, {shapes: {T: 65}}],
  'an unknown rule': [422, {masks: {casual: true}}],
  'heads that do not divide': [422, {shapes: {heads: 3, kv_heads: 2}}],
  'not JSON': [400, ''],
};

const listed = (rows, path) => Object.entries(rows).map(([name, body]) =>
  ({name: `${path}: ${name}`, path, status: 200, body: JSON.stringify(body)}));
const refusedOf = (rows, path) => Object.entries(rows).map(([name, [status, body]]) =>
  ({name: `${path}: ${name}`, path, status, body: typeof body === 'string' ? body : JSON.stringify(body)}));

// A safetensors file of these float64 tensors: name → [shape, numbers].
function file(tensors, rest) {
  const header = {__metadata__: {attentiond: JSON.stringify(rest)}};
  const data = [];
  let at = 0;
  for (const [name, [shape, numbers]] of Object.entries(tensors)) {
    data.push(Buffer.from(new Float64Array(numbers).buffer));
    header[name] = {dtype: 'F64', shape, data_offsets: [at, at += 8 * numbers.length]};
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, ...data]);
}

const FILE = 'application/vnd.safetensors';
const QKV = {Q: [[2, 2], [1, 0, 0, 1]], K: [[2, 2], [0, 1, 1, 0]], V: [[2, 2], [1, 2, 3, 4]]};
const fileRequests = () => [
  ...[FILE, 'application/octet-stream', `application/json;q=0.5, ${FILE}`].map((accept) =>
    ({name: `a file for ${accept}`, status: 200, body: JSON.stringify(EVERYTHING), headers: {accept}})),
  {name: 'a file in', status: 200, body: file(QKV, {masks: {causal: true}}), headers: {'content-type': FILE}},
  {name: 'a file in and out', status: 200, body: file(QKV, {}), headers: {'content-type': FILE, accept: FILE}},
  {name: 'a file that is none', status: 400, body: 'abc', headers: {'content-type': FILE}},
  {name: 'a file cut short', status: 400, body: file(QKV, {}).subarray(0, -8), headers: {'content-type': FILE}},
  {name: 'a tensor given twice', status: 422, body: file(QKV, {inputs: {Q: [[1]]}}), headers: {'content-type': FILE}},
  {name: 'a tensor nobody knows', status: 422, body: file({W: QKV.Q}, {}), headers: {'content-type': FILE}},
].map((request) => ({...request, path: '/v1/attention'}));

export function requests() {
  const valid = Object.entries(VALID).map(([name, body]) =>
    ({name, path: '/v1/attention', status: 200, body: JSON.stringify(body)}));
  const refused = Object.entries(REFUSED).map(([name, [status, body]]) =>
    ({name, path: '/v1/attention', status, body: typeof body === 'string' ? body : JSON.stringify(body)}));
  const plans = Object.entries(PLANS).map(([name, body]) =>
    ({name: `plan: ${name}`, path: '/v1/plan', status: 200, body: JSON.stringify(body)}));
  const body = JSON.stringify(ONE);
  return [...valid, ...refused, ...plans,
    ...listed(AUDITS, '/v1/audit'), ...refusedOf(AUDITS_REFUSED, '/v1/audit'),
    ...listed(PROBES, '/v1/probe'), ...refusedOf(PROBES_REFUSED, '/v1/probe'),
    {name: 'plan: an unknown field', path: '/v1/plan', status: 422, body: '{"shape":{}}'},
    {name: 'plan: not JSON', path: '/v1/plan', status: 400, body: '{'},
    {name: 'a text body', path: '/v1/attention', status: 415, body, headers: {'content-type': 'text/plain'}},
    {name: 'a coded body', path: '/v1/attention', status: 415, body, headers: {'content-encoding': 'gzip'}},
    ...fileRequests(),
    {name: 'a packed answer', path: '/v1/attention', status: 200, body, headers: {'accept-encoding': 'gzip'}},
    {name: 'an Accept that cannot be met', path: '/v1/attention', status: 406, body,
      headers: {accept: 'image/png'}},
  ];
}

// The fullest request with each fault of the catalog, whether it shows here or not.
export function injections(catalog) {
  const {ablations: _, ...rest} = EVERYTHING;
  return catalog.faults.map((fault) => ({name: `inject ${fault.name}`, path: '/v1/attention', status: 200,
    body: JSON.stringify({...rest, inject: fault.name, audit: 'full'})}));
}
