// Draws the dashboard that lbd ships from what a Prometheus has, and takes the pictures of docs.
//
//   node draw.mjs DATA
//
// DATA is a folder with `data`, which Prometheus serves, and range.json: from when to when, and how
// often it read, in seconds. The dashboard is in two pictures, its upper rows in light colours.
import { execFile, spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { copyFile, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '../../..');
const run = promisify(execFile);
const width = 1440;
const rowHeight = 38; // as panels.jsx has it
const most = 400 << 10; // bytes of a picture
const folder = process.argv[2];
const { from, to, step } = JSON.parse(await readFile(join(folder, 'range.json'), 'utf8'));
const dashboard = JSON.parse(await readFile(join(root, 'packaging/kustomize/monitoring/dashboard.json'), 'utf8'));

// serve starts a Prometheus that reads nobody. It returns what asks it, and what ends it.
async function serve() {
  const address = '127.0.0.1:9393';
  const config = join(folder, 'empty.yaml');
  await writeFile(config, 'global: {}\n');
  const server = spawn('prometheus', [
    `--config.file=${config}`, `--storage.tsdb.path=${join(folder, 'data')}`, '--storage.tsdb.retention.time=10y', `--web.listen-address=${address}`, '--log.level=error',
  ], { stdio: 'inherit' });
  let why; // it has ended
  const ended = new Promise((done) => {
    server.on('error', (err) => { why = err; done(); }).on('exit', (code) => { why = new Error(`prometheus ended with ${code}`); done(); });
  });
  const ready = () => fetch(`http://${address}/-/ready`).then(({ ok }) => ok, () => false);
  for (const begin = Date.now(); !(await ready()); await pause(100)) {
    if (why || Date.now() > begin + 60_000) {
      server.kill();
      throw why ?? new Error('prometheus does not serve');
    }
  }
  const ask = async (path, parameters) => {
    const answer = await (await fetch(`http://${address}/api/v1/${path}?${new URLSearchParams(parameters)}`)).json();
    if (answer.status !== 'success') {
      throw new Error(`${parameters.query}: ${answer.error}`);
    }
    return answer.data.result;
  };
  return { ask, stop: () => { server.kill(); return ended; } };
}

// answers are those to the queries of all panels, with all nodes chosen, as the dashboard opens.
async function answers(ask) {
  const all = {};
  for (const panel of dashboard.panels.filter((p) => p.targets)) {
    all[panel.id] = await Promise.all(panel.targets.map(async (target) => {
      const query = target.expr.replaceAll('$instance', '.*');
      const answer = await (target.instant ? ask('query', { query, time: to }) : ask('query_range', { query, start: from, end: to, step }));
      if (answer.length === 0) {
        console.log(`${panel.title}: nothing for ${query}`);
      }
      return { target, answer };
    }));
  }
  return all;
}

async function bundled() {
  const { outputFiles } = await build({
    entryPoints: [join(here, 'panels.jsx')], bundle: true, minify: true, write: false, outdir: '/', format: 'esm', jsx: 'automatic', logLevel: 'error',
    define: { 'process.env.NODE_ENV': '"production"', global: 'window' }, loader: { '.ttf': 'empty' },
  });
  return (end) => outputFiles.find((f) => f.path.endsWith(end)).text;
}

// fetched is what the components ask the server of Grafana for: icons and letters.
async function fetched(url) {
  const modules = join(here, 'node_modules');
  const weight = { '/fonts/inter/Inter-Regular.woff2': 400, '/fonts/inter/Inter-Medium.woff2': 500 }[url];
  if (weight) {
    return ['font/woff2', await readFile(join(modules, `@fontsource/inter/files/inter-latin-${weight}-normal.woff2`))];
  }
  return ['image/svg+xml', await readFile(join(modules, '@grafana/ui/dist/public', url.replace('/build/', '')))];
}

function page(style, input) {
  return `<!doctype html><style>${style}</style><div id="root"></div>
<script>window.__grafana_public_path__ = '/'; window.input = ${JSON.stringify(input).replaceAll('<', '\\u003c')}</script>
<script type="module" src="/panels.js"></script>`;
}

async function browser() {
  for (const name of ['chromium-headless-shell', 'chromium-shell', 'chromium', 'google-chrome']) {
    if (await run(name, ['--version']).catch(() => null)) {
      return name;
    }
  }
  throw new Error("no Chromium: `make dashboard` installs Debian's package chromium-headless-shell");
}

// shoot puts a picture into docs if the browser had nothing to say.
async function shoot(program, url, name, height) {
  const file = join(folder, name);
  const { stderr } = await run(program, [
    '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--font-render-hinting=none', '--enable-logging=stderr',
    `--window-size=${width},${height}`, '--virtual-time-budget=20000', `--screenshot=${file}`, url,
  ]);
  const said = stderr.split('\n').filter((line) => line.includes('CONSOLE'));
  const { size } = await stat(file);
  if (said.length > 0 || size > most) {
    throw new Error(`${file}: ${size} bytes, ${most} at most; the browser says ${said.join('\n')}`);
  }
  await copyFile(file, join(root, 'docs', name));
  console.log(`docs/${name}: ${size} bytes`);
}

const prometheus = await serve();
const results = await answers(prometheus.ask).finally(prometheus.stop);
const middle = dashboard.panels.find((p) => p.type === 'row' && p.title === 'Group and daemons').gridPos.y;
const end = Math.max(...dashboard.panels.map((p) => p.gridPos.y + p.gridPos.h));
const halves = { light: { top: 0, bottom: middle }, dark: { top: middle, bottom: end } };
const file = await bundled();
const server = createServer(async ({ url }, response) => {
  try {
    const mode = url.slice(1);
    const [type, body] = halves[mode] ? ['text/html', page(file('.css'), { dashboard, results, from: from * 1000, to: to * 1000, step, mode, ...halves[mode] })]
      : url === '/panels.js' ? ['text/javascript', file('.js')] : await fetched(url);
    response.setHeader('Content-Type', `${type}; charset=utf-8`).end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
try {
  const program = await browser();
  for (const [mode, { top, bottom }] of Object.entries(halves)) {
    await shoot(program, `http://127.0.0.1:${server.address().port}/${mode}`, `dashboard-${mode}.png`, (bottom - top) * rowHeight + (top === 0 ? 72 : 16));
  }
} finally {
  server.close();
}
