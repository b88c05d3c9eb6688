// docker/compose.yaml against the container check, which runs the image without a Docker
// engine: what the check runs must be what compose would start.  A setting that neither
// table knows fails.
// Not here: running it (scripts/container-check.sh).  Start reading at SAME.
import {existsSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {parse} from 'yaml';

// Of compose: the flag of `podman run` that must say the same, and how compose's value
// reads as one.
const SAME = {
  read_only: ['read-only', (value) => (value === true ? '' : null)],
  tmpfs: ['tmpfs', (list) => list.join()],
  cap_drop: ['cap-drop', (list) => list.join().toLowerCase()],
  security_opt: ['security-opt', (list) => list.join().replaceAll(':true', '')],
  mem_limit: ['memory', String],
  pids_limit: ['pids-limit', String],
};

// Of the check alone: it has no engine that restarts for ever, and no network of its own.
const CHECK_ALONE = ['quiet', 'detach', 'name', 'restart', 'network', 'env'];

// Of compose alone, against the image and the service: what is wrong, or null.
const COMPOSE_ALONE = {
  image: () => null,
  restart: (value) => (value === 'unless-stopped' ? null : `restart: ${value}`),
  build({context, dockerfile}, {root}) {
    const from = join(root, 'docker', context);
    return [dockerfile, 'Makefile'].every((file) => existsSync(join(from, file))) ? null
      : `no ${dockerfile}`;
  },
  ports([first, ...others], {dockerfile}) {
    const inside = dockerfile.match(/^EXPOSE (\d+)$/m)[1];
    const right = first === `127.0.0.1:\${PORT:-${inside}}:${inside}`;
    return right && others.length === 0 ? null : `ports: ${first}`;
  },
  stop_grace_period(value, {help}) {
    const drain = Number(help.match(/--drain-time[\s\S]*?default (\d+)/)[1]);
    return 1000 * parseInt(value, 10) > drain ? null
      : `${value}, but draining may take ${drain} ms`;
  },
  healthcheck({test, interval, timeout, retries, start_period: start}, {dockerfile}) {
    const own = `--interval=${interval} --timeout=${timeout} --start-period=${start} `
      + `--retries=${retries} CMD ${JSON.stringify(test.slice(1)).replaceAll(',', ', ')}`;
    const image = dockerfile.replace(/\\\n\s*/g, '').match(/^HEALTHCHECK (.*)$/m)[1];
    return test[0] === 'CMD' && own === image ? null : `${own}, in the image ${image}`;
  },
};

// The flags of the check's `podman run`: name to value, '' where it has none.
function flagsOf(script) {
  const command = script.match(/podman run ([\s\S]*?) "\$image"/)[1];
  const words = command.replaceAll('\\\n', ' ').split(/\s+/);
  const flags = {};
  words.forEach((word, n) => {
    if (word.startsWith('--'))
      flags[word.slice(2)] = words[n + 1]?.startsWith('--') ?? true ? '' : words[n + 1];
  });
  return flags;
}

/** Compares the files below root; report(name, problem or null). */
export function compose(root, help, report) {
  const read = (...path) => readFileSync(join(root, ...path), 'utf8');
  const {services, ...rest} = parse(read('docker', 'compose.yaml'));
  const {attentiond: service, ...others} = services;
  const flags = flagsOf(read('scripts', 'container-check.sh'));
  const context = {root, help, dockerfile: read('docker', 'Dockerfile')};

  report('compose: one service', Object.keys({...rest, ...others}).join() || null);
  for (const [key, value] of Object.entries(service)) {
    const [flag, reads] = SAME[key] ?? [];
    report(`compose: ${key}`, flag ? (flags[flag] === reads(value) ? null
      : `${JSON.stringify(value)}, but the check runs --${flag} ${flags[flag]}`)
      : COMPOSE_ALONE[key] ? COMPOSE_ALONE[key](value, context) : 'nothing compares it');
  }
  for (const key of [...Object.keys(SAME), ...Object.keys(COMPOSE_ALONE)])
    report(`compose states ${key}`, key in service ? null : 'it does not');
  for (const flag of Object.keys(flags))
    report(`compose: --${flag}`, CHECK_ALONE.includes(flag)
      || Object.values(SAME).some(([name]) => name === flag) ? null
      : 'compose does not set it');
}
