#!/usr/bin/env node
// Every answer of the running service against openapi.yaml, and openapi.yaml against its routes.
// usage: run.mjs BINARY   (after `npm install --ignore-scripts` in this folder)
// Not here: whether the numbers are right (tests/http).  Start reading at main().
import {spawn, spawnSync} from 'node:child_process';
import {existsSync, readFileSync, readdirSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';
import Ajv2020 from 'ajv/dist/2020.js';
import {parse} from 'yaml';
import {compose} from './compose.mjs';
import {fields} from './fields.mjs';
import {draining, headersWrong, requestIds} from './headers.mjs';
import {injections, requests} from './requests.mjs';

const HERE = dirname(fileURLToPath(import.meta.url));
const ROOT = join(HERE, '../..');
const METHODS = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'];
const PROBLEM = 'application/problem+json';
const NO_OPERATION = '#/components/responses/MethodNotAllowed';
const FILES = ['application/vnd.safetensors', 'application/octet-stream'];

let passed = 0;
let failed = 0;

function check(name, wrong) {
  if (!wrong) {
    passed++;
    return;
  }
  failed++;
  console.log(`FAIL ${name}: ${wrong}`);
}

// ---- the contract ----

const spec = parse(readFileSync(join(ROOT, 'openapi.yaml'), 'utf8'));
const ajv = new Ajv2020({strict: false, allErrors: false});
ajv.addSchema(spec, 'spec');

const escaped = (part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'));
const pointer = (...parts) => '#/' + parts.map(escaped).join('/');

// Follows $ref of a response; its place and itself.
function response(path, method, status) {
  let place = ['paths', path, method.toLowerCase(), 'responses', String(status)];
  let node = place.reduce((at, key) => at?.[key], spec);
  if (node?.$ref) {
    place = node.$ref.slice(2).split('/');
    node = place.reduce((at, key) => at[key], spec);
  }
  return node && {place, node};
}

function schemaErrors(ref, value) {
  const validate = ajv.getSchema('spec' + ref) ?? ajv.compile({$ref: 'spec' + ref});
  if (validate(value))
    return null;
  const error = validate.errors.at(-1);
  return `${error.instancePath || '/'} ${error.message} ${JSON.stringify(error.params)}`;
}

// The JSON beside the tensors of a safetensors file, whose offsets must cover its data.
function fileRest(bytes) {
  const size = Number(bytes.readBigUInt64LE(0));
  const {__metadata__: metadata, ...tensors} = JSON.parse(bytes.subarray(8, 8 + size).toString());
  let at = 0;
  for (const {data_offsets: [begin, end]} of Object.values(tensors)) {
    if (begin !== at)
      throw new Error(`a tensor begins at ${begin}, not at ${at}`);
    at = end;
  }
  if (at !== bytes.length - 8 - size)
    throw new Error(`tensors end at ${at} of ${bytes.length - 8 - size}`);
  return metadata.attentiond;
}

// What is wrong with one answer, or null.
function answerWrong(path, method, answer) {
  const found = response(path, method, answer.status);
  if (!found)
    return `status ${answer.status} is not documented: ${answer.text.slice(0, 300)}`;
  return headersWrong(spec, found.node, answer, schemaErrors) ?? contentWrong(found, answer);
}

// The same where no path stands in the contract.
function componentWrong(name, answer) {
  const place = ['components', 'responses', name];
  const node = spec.components.responses[name];
  return headersWrong(spec, node, answer, schemaErrors) ?? contentWrong({place, node}, answer);
}

function contentWrong(found, answer) {
  const type = (answer.headers.get('content-type') ?? '').split(';')[0];
  if (!found.node.content?.[type])
    return `status ${answer.status} has content type ${type}`;
  if (type === 'application/yaml')
    return null;
  let value;
  try {
    value = JSON.parse(FILES.includes(type) ? fileRest(answer.bytes) : answer.text);
  } catch (error) {
    return `not JSON: ${error.message}`;
  }
  if (type === PROBLEM && value.status !== answer.status)
    return `problem says ${value.status}, the status line ${answer.status}`;
  const wrong = schemaErrors(pointer(...found.place, 'content', type, 'schema'), value);
  return wrong && `status ${answer.status}: ${wrong}`;
}

// ---- the service ----

async function start(binary, ...options) {
  const child = spawn(binary, ['--port', '0', ...options], {stdio: ['ignore', 'pipe', 'ignore']});
  const lines = createInterface({input: child.stdout});
  const first = await new Promise((resolve, reject) => {
    lines.once('line', resolve);
    child.once('exit', (code) => reject(new Error(`${binary} ended with ${code}`)));
    child.once('error', reject);
  });
  const port = first.match(/:(\d+)/)?.[1] ?? first.match(/(\d+)\D*$/)?.[1];
  return {child, base: `http://127.0.0.1:${port}`};
}

async function send(base, method, path, body, headers = {}) {
  const given = body === undefined ? {} : {'content-type': 'application/json'};
  const answer = await fetch(base + path, {method, body, headers: {...given, ...headers}});
  const bytes = Buffer.from(await answer.arrayBuffer());
  return {status: answer.status, headers: answer.headers, bytes, text: bytes.toString()};
}

// ---- what is checked ----

function lint() {
  const run = spawnSync(join(HERE, 'node_modules/.bin/redocly'),
    ['lint', '--config', join(HERE, 'redocly.yaml'), '--max-problems', '5', join(ROOT, 'openapi.yaml')],
    {encoding: 'utf8', env: {...process.env, REDOCLY_TELEMETRY: 'off',
      REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true'}});
  const problems = run.stderr.match(/You have .*(error|warning)/);
  check('lint', run.status !== 0 || problems ? run.stdout.slice(0, 2000) + run.stderr.slice(-500) : null);
  const text = readFileSync(join(ROOT, 'openapi.yaml'), 'utf8');
  const unused = Object.entries(spec.components).flatMap(([kind, rows]) => Object.keys(rows)
    .map((name) => `#/components/${kind}/${name}`)).filter((ref) => !text.includes(`'${ref}'`));
  check('components are used', unused.join() === NO_OPERATION ? null : `unused: ${unused}`);
}

function folderRequests(folder) {
  const path = join(ROOT, folder);
  if (!existsSync(path))
    return [];
  return readdirSync(path).sort().flatMap((name) => {
    const meta = join(path, name, 'meta.json');
    const to = existsSync(meta) ? JSON.parse(readFileSync(meta, 'utf8')).path : '/v1/attention';
    for (const file of ['request.json', 'request.txt'])
      if (existsSync(join(path, name, file)))
        return [{name: `${folder}/${name}`, path: to ?? '/v1/attention',
          body: readFileSync(join(path, name, file))}];
    return [];
  });
}

function exampleRequests() {
  const folder = join(ROOT, 'examples');
  const files = readdirSync(folder).filter((name) => name.endsWith('.json')).sort();
  const inSpec = Object.entries(spec.paths).flatMap(([path, item]) =>
    Object.entries(item.post?.requestBody?.content['application/json'].examples ?? {})
      .map(([name, row]) => ({name: `openapi.yaml ${name}`, path, status: 200,
        body: JSON.stringify(row.value)})));
  return files.map((file) => ({name: `examples/${file}`, path: '/v1/attention', status: 200,
    body: readFileSync(join(folder, file))})).concat(inSpec);
}

async function one(base, request) {
  const answer = await send(base, 'POST', request.path, request.body, request.headers);
  let wrong = answerWrong(request.path, 'POST', answer);
  if (!wrong && request.status && answer.status !== request.status)
    wrong = `status ${answer.status}, want ${request.status}: ${answer.text.slice(0, 300)}`;
  check(request.name, wrong);
  if (answer.status === 200 && !FILES.includes(request.headers?.['content-type']))
    check(`${request.name} (request)`, schemaErrors(pointer('paths', request.path, 'post',
      'requestBody', 'content', 'application/json', 'schema'), JSON.parse(request.body)));
  return answer;
}

// A schema that lets everything pass would prove nothing.
function schemasCanFail(text) {
  const ref = pointer('components', 'schemas', 'AttentionAnswer');
  const answer = JSON.parse(text);
  for (const key of spec.components.schemas.AttentionAnswer.required) {
    const {[key]: _, ...rest} = answer;
    check(`an answer without ${key} is refused`, schemaErrors(ref, rest) ? null : 'it passed');
  }
  check('an answer with another member is refused',
    schemaErrors(ref, {...answer, surprise: 1}) ? null : 'it passed');
  check('an answer with another tensor is refused',
    schemaErrors(ref, {...answer, tensors: {...answer.tensors, Z: [1]}}) ? null : 'it passed');
}

async function gets(base) {
  for (const [path, item] of Object.entries(spec.paths)) {
    if (!item.get)
      continue;
    const names = path.includes('{name}')
      ? JSON.parse((await send(base, 'GET', '/v1/examples')).text).examples.map((e) => e.name)
      : [''];
    for (const name of names) {
      const to = path.replace('{name}', name);
      const answer = await send(base, 'GET', to);
      check(`GET ${to}`, answerWrong(path, 'GET', answer) ??
        (answer.status === 200 ? null : `status ${answer.status}`));
      const head = await send(base, 'HEAD', to);
      check(`HEAD ${to}`, head.status === 200 && head.text === '' ? null
        : `status ${head.status}, ${head.text.length} bytes`);
    }
  }
  check('GET of an unknown example',
    answerWrong('/v1/examples/{name}', 'GET', await send(base, 'GET', '/v1/examples/none')));
  check('GET with an Accept that cannot be met', answerWrong('/v1/catalog', 'GET',
    await send(base, 'GET', '/v1/catalog', undefined, {accept: 'image/png'})));
  const served = await send(base, 'GET', '/openapi.yaml');
  check('/openapi.yaml is the file', served.text === readFileSync(join(ROOT, 'openapi.yaml'), 'utf8')
    ? null : 'it differs');
}

// Documented methods are taken; every other is 405, and Allow names the documented ones.
async function methods(base) {
  for (const [path, item] of Object.entries(spec.paths)) {
    const to = path.replace('{name}', 'ln3');
    const known = Object.keys(item).map((m) => m.toUpperCase()).filter((m) => METHODS.includes(m));
    for (const method of METHODS) {
      const body = method === 'GET' ? undefined : '{}';
      const answer = await send(base, method, to, body);
      if (known.includes(method)) {
        check(`${method} ${path} is served`,
          [404, 405].includes(answer.status) ? `status ${answer.status}` : null);
        continue;
      }
      const allow = (answer.headers.get('allow') ?? '').split(/, */).sort().join();
      const want = [...known, ...(known.includes('GET') ? ['HEAD'] : []), 'OPTIONS'].sort().join();
      check(`${method} ${path} is refused`, answer.status !== 405 ? `status ${answer.status}`
        : allow !== want ? `Allow: ${allow}, want ${want}` : componentWrong('MethodNotAllowed', answer));
    }
  }
  const answer = await send(base, 'GET', '/no/such/path');
  check('an unknown path', answer.status !== 404 ? `status ${answer.status}`
    : componentWrong('NotFound', answer));
  const options = await send(base, 'OPTIONS', '/v1/attention', undefined,
    {origin: 'http://page.example', 'access-control-request-method': 'POST'});
  check('OPTIONS', options.status !== 204 ? `status ${options.status}`
    : headersWrong(spec, spec.components.responses.MethodNotAllowed, options, schemaErrors));
}

// The table of routes in the server's source and the paths of the contract are the same set.
function routes() {
  const source = readFileSync(join(ROOT, 'server/srv_routes.c'), 'utf8');
  const rows = [...source.matchAll(/\{\s*"(GET|POST)",\s*"([^"]+)"/g)].map((m) => `${m[1]} ${m[2]}`);
  const documented = Object.entries(spec.paths).flatMap(([path, item]) => Object.keys(item)
    .map((m) => m.toUpperCase()).filter((m) => METHODS.includes(m)).map((m) => `${m} ${path}`));
  for (const row of new Set([...rows, ...documented]))
    check(`route ${row}`, !rows.includes(row) ? 'not in ROUTES'
      : !documented.includes(row) ? 'not in openapi.yaml' : null);
}

// README's section on options is --help, to the letter (scripts/readme.py puts it there).
function options(binary) {
  const help = spawnSync(binary, ['--help'], {encoding: 'utf8'});
  check('--help', help.status === 0 && help.stdout.includes('--port') ? null : `status ${help.status}`);
  const section = readFileSync(join(ROOT, 'README.md'), 'utf8').match(/\n## Options\n([\s\S]*?)\n## /)?.[1];
  const block = section?.match(/```\n([\s\S]*?)\n```/)?.[1];
  compose(ROOT, help.stdout, check);
  check('README options', block === help.stdout.trimEnd() ? null : 'not what --help prints: run make readme');
}

async function main() {
  const binary = process.argv[2];
  if (!binary) {
    console.error('usage: run.mjs BINARY');
    return 2;
  }
  lint();
  routes();
  options(binary);
  const {child, base} = await start(binary);
  try {
    await gets(base);
    await methods(base);
    await requestIds((id) => send(base, 'GET', '/v1/examples/none', undefined, {'x-request-id': id}),
      answerWrong, check);
    const all = [...exampleRequests(), ...folderRequests('tests/cases/valid'),
      ...folderRequests('tests/cases/invalid'), ...requests(),
      ...injections(JSON.parse((await send(base, 'GET', '/v1/catalog')).text))];
    let fullest = '';
    for (const request of all) {
      if (!spec.paths[request.path]) {
        console.log(`SKIP ${request.name}: ${request.path} is not in openapi.yaml`);
        continue;
      }
      const answer = await one(base, request);
      if (request.name === 'everything asked')
        fullest = answer.text;
    }
    schemasCanFail(fullest);
    await fields(spec, (body) => send(base, 'POST', '/v1/attention', JSON.stringify(body)), check);
  } finally {
    child.kill('SIGTERM');
  }
  const second = await start(binary, '--drain-wait', '3000');
  try {
    await draining(second, send, answerWrong, check);
  } finally {
    second.child.kill('SIGKILL');
  }
  console.log(`${passed} passed, ${failed} failed`);
  return failed > 0 ? 1 : 0;
}

process.exit(await main());
