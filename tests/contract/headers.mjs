// Response headers of the running service against openapi.yaml, both ways: what is sent
// is documented, and what is documented as required is sent, in the form of its schema.
// Not here: bodies (run.mjs).  Start reading at headersWrong().

// What HTTP itself needs, and what the library of this suite adds.
const OF_HTTP = ['connection', 'content-length', 'content-type', 'date', 'keep-alive',
  'transfer-encoding'];

// Headers that are alike on every path are named once, in the contract's introduction.
function introduced(spec) {
  const paragraph = /\*\*Headers\.\*\*([\s\S]*?)(\n\n|$)/;
  const section = spec.info.description.match(paragraph)?.[1] ?? '';
  const alike = section.split('alike on every path').at(-1);
  return [...alike.matchAll(/`([A-Z][\w-]+)`/g)].map((m) => m[1].toLowerCase());
}

/** What is wrong with the headers of an answer that `response` of the contract
    describes, or null. */
export function headersWrong(spec, response, answer, schemaErrors) {
  const documented = Object.keys(response.headers ?? {});
  const known = [...documented.map((name) => name.toLowerCase()), ...introduced(spec),
    ...OF_HTTP];
  for (const name of answer.headers.keys())
    if (!known.includes(name))
      return `status ${answer.status} has a header that is not documented: ${name}`;
  for (const [name, {$ref}] of Object.entries(response.headers ?? {})) {
    const component = $ref.split('/').at(-1);
    const {required, schema} = spec.components.headers[component];
    const sent = answer.headers.get(name);
    if (sent === null && required)
      return `status ${answer.status} lacks the header ${name}`;
    const value = schema.type === 'integer' ? Number(sent) : sent;
    const wrong = sent !== null
      && schemaErrors(`#/components/headers/${component}/schema`, value);
    if (wrong)
      return `status ${answer.status} has ${name}: ${sent}: ${wrong}`;
  }
  return null;
}

/** A request's id comes back in header and body when it is one; otherwise the service
    makes one. */
export async function requestIds(ask, answerWrong, check) {
  const made = new Set();
  for (const [id, taken] of [['order-66.a_B', true], ['x'.repeat(128), true],
    ['x'.repeat(129), false], ['a b', false], ['a"b', false], ['', false]]) {
    const answer = await ask(id);
    const got = answer.headers.get('x-request-id');
    check(`X-Request-Id ${JSON.stringify(id).slice(0, 20)}`,
      answerWrong('/v1/examples/{name}', 'GET', answer)
      ?? (JSON.parse(answer.text).request_id !== got ? 'header and body differ'
        : (got === id) !== taken ? `answered ${got}`
          : made.has(got) ? `${got} again` : null));
    made.add(got);
  }
}

/** The 503 of a service that shuts down, with its Retry-After. */
export async function draining({child, base}, send, answerWrong, check) {
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  for (let answer, tries = 0; tries < 100; tries++) {
    answer = await send(base, 'GET', '/health/ready');
    if (answer.status !== 503 && tries < 99) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      continue;
    }
    check('/health/ready of a service that drains', answer.status !== 503
      ? `status ${answer.status}` : answerWrong('/health/ready', 'GET', answer));
    break;
  }
  child.kill('SIGTERM');
  await ended;
}
