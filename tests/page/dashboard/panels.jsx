// Draws a dashboard with the components that Grafana draws it with. What Grafana has beside them, in
// its server and its panel plugins, is here as far as the dashboard of lbd needs it.
import { createRoot } from 'react-dom/client';
import { lastValueFrom } from 'rxjs';
import {
  applyFieldOverrides, applyNullInsertThreshold, createTheme, dateTime, FieldConfigOptionsRegistry, FieldType, getFieldDisplayValues,
  identityOverrideProcessor, renderLegendFormat, standardTransformers, standardTransformersRegistry, ThemeContext, toDataFrame, transformDataFrame,
} from '@grafana/data';
import {
  BigValue, BigValueColorMode, BigValueGraphMode, BigValueTextMode, GlobalStyles, Icon, PanelChrome, TimeSeries, ToolbarButton, VizRepeater,
} from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

const { dashboard, results, from, to, step, mode, top, bottom } = window.input;
const shown = dashboard.panels.filter(({ gridPos: { y } }) => top <= y && y < bottom);
const theme = createTheme({ colors: { mode } });
const timeRange = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
// The grid of Grafana: 24 columns, and rows of 30 pixels.
const rowHeight = 38;
const gap = 8;
const edge = 16;

// What the plugin for this type of panel sets where the dashboard is silent.
const graph = {
  drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none', showPoints: 'auto', pointSize: 5,
  stacking: { mode: 'none', group: 'A' }, axisGridShow: true, axisPlacement: 'auto', spanNulls: false, barAlignment: 0,
};
const defaults = {
  timeseries: { color: { mode: 'palette-classic' }, custom: graph },
  stat: { color: { mode: 'thresholds' } },
  table: { custom: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false } },
};
const thresholds = { mode: 'absolute', steps: [{ value: -Infinity, color: 'green' }, { value: 80, color: 'red' }] };

const { organizeFieldsTransformer: organize } = standardTransformers;
standardTransformersRegistry.setInit(() => [{ id: organize.id, name: organize.name, transformation: async () => organize }]);

// What the dashboard says of fields, and to which of them it applies.
const known = {
  standard: ['unit', 'min', 'max', 'decimals', 'noValue', 'color', 'thresholds', 'mappings', 'displayName'],
  custom: [...Object.keys(defaults.table.custom), ...Object.keys(graph), 'axisSoftMax', 'minWidth'],
};
const registry = new FieldConfigOptionsRegistry(() => [
  ...known.standard.map((path) => ({ id: path, path, shouldApply: ({ type }) => type === FieldType.number, process: identityOverrideProcessor })),
  ...known.custom.map((path) => ({
    id: `custom.${path}`, path, isCustom: true, shouldApply: ({ type }) => type !== FieldType.time, process: identityOverrideProcessor,
  })),
]);

// check refuses what would be left out of the picture without a word.
function check({ title, type, fieldConfig: { defaults: own } }) {
  const strange = [
    ...Object.keys(own).filter((key) => key !== 'custom' && !known.standard.includes(key)),
    ...Object.keys(own.custom ?? {}).filter((key) => !known.custom.includes(key)),
  ];
  if (!defaults[type] || strange.length > 0) {
    throw new Error(`${title}: ${type} ${strange}: this cannot be drawn yet`);
  }
}

const number = (text) => (text === 'NaN' ? null : Number(text));

// frames are the answers of Prometheus as its data source for Grafana gives them to panels.
function frames(panel) {
  return results[panel.id].flatMap(({ target, answer }) => {
    if (target.format === 'table') {
      const labels = [...new Set(answer.flatMap((s) => Object.keys(s.metric)))].sort();
      return [toDataFrame({ refId: target.refId, fields: [
        { name: 'Time', type: FieldType.time, values: answer.map((s) => s.value[0] * 1000) },
        ...labels.map((name) => ({ name, type: FieldType.string, values: answer.map((s) => s.metric[name]) })),
        { name: 'Value', type: FieldType.number, values: answer.map((s) => Number(s.value[1])) },
      ] })];
    }
    return answer.map((s) => {
      const name = target.legendFormat ? renderLegendFormat(target.legendFormat, s.metric) : undefined;
      return toDataFrame({ refId: target.refId, fields: [
        { name: 'Time', type: FieldType.time, values: s.values.map((v) => v[0] * 1000), config: { interval: step * 1000 } },
        { name: 'Value', type: FieldType.number, labels: s.metric, values: s.values.map((v) => number(v[1])), config: { displayNameFromDS: name } },
      ] });
    });
  });
}

async function prepared(panel) {
  check(panel);
  const data = await lastValueFrom(transformDataFrame(panel.transformations ?? [], frames(panel)));
  const own = panel.fieldConfig.defaults;
  const steps = own.thresholds?.steps.map((s) => ({ ...s, value: s.value ?? -Infinity }));
  const merged = {
    ...defaults[panel.type], ...own, thresholds: steps ? { ...own.thresholds, steps } : thresholds,
    custom: { ...defaults[panel.type].custom, ...own.custom },
  };
  const fields = applyFieldOverrides({
    data, theme, fieldConfigRegistry: registry, timeZone: 'utc', replaceVariables: (s) => s,
    fieldConfig: { defaults: merged, overrides: panel.fieldConfig.overrides },
  });
  if (panel.type !== 'timeseries') {
    return fields;
  }
  // Without it lines go on where a query gives nothing.
  return fields.map((frame) => applyNullInsertThreshold({ frame, refFieldPseudoMin: from, refFieldPseudoMax: to }));
}

function Stat({ panel, data, width, height }) {
  const values = getFieldDisplayValues({
    data, theme, timeZone: 'utc', sparkline: true, replaceVariables: (s) => s,
    fieldConfig: panel.fieldConfig, reduceOptions: { values: false, ...panel.options.reduceOptions },
  });
  return (
    <VizRepeater
      getValues={() => values} source={data} width={width} height={height} orientation="auto" renderCounter={0} autoGrid minVizWidth={0}
      renderValue={({ value, width, height }) => (
        <BigValue value={value.display} sparkline={value.sparkline} width={width} height={height} theme={theme}
          colorMode={panel.options.colorMode ?? BigValueColorMode.Value} graphMode={panel.options.graphMode ?? BigValueGraphMode.Area}
          textMode={panel.options.textMode ?? BigValueTextMode.Auto} count={values.length} justifyMode="auto" />
      )}
    />
  );
}

const empty = { display: 'flex', alignItems: 'center', justifyContent: 'center', height: '100%', color: theme.colors.text.secondary };

function Content({ panel, data, width, height }) {
  if (!data.some((f) => f.length > 0)) {
    return <div style={empty}>{panel.fieldConfig.defaults.noValue ?? 'No data'}</div>;
  }
  if (panel.type === 'stat') {
    return <Stat panel={panel} data={data} width={width} height={height} />;
  }
  if (panel.type === 'table') {
    return <TableNG data={data[0]} width={width} height={height} />;
  }
  return (
    <TimeSeries
      frames={data} timeRange={timeRange} timeZone="utc" width={width} height={height} structureRev={1}
      legend={{ showLegend: true, calcs: [], ...panel.options.legend }} options={panel.options}
    />
  );
}

function Panel({ panel, data, box }) {
  return (
    <PanelChrome
      title={panel.title} description={panel.description || undefined} width={box.width} height={box.height}
      padding={panel.type === 'stat' ? 'none' : 'md'}
    >
      {(width, height) => <Content panel={panel} data={data} width={width} height={height} />}
    </PanelChrome>
  );
}

const rowStyle = { display: 'flex', alignItems: 'center', gap: 8, height: '100%', fontSize: theme.typography.h5.fontSize, fontWeight: 500 };
const variable = { border: `1px solid ${theme.colors.border.weak}`, borderRadius: 2, display: 'inline-flex', height: 32, alignItems: 'center', marginRight: 16 };

function Bar() {
  const clock = (t) => new Date(t).toISOString().slice(11, 19);
  return (
    <div style={{ display: 'flex', alignItems: 'center', padding: `${edge}px ${edge}px 8px` }}>
      {dashboard.templating.list.map((v) => (
        <span key={v.name} style={variable}>
          <span style={{ padding: '0 8px', fontWeight: 500, fontSize: 12 }}>{v.label}</span>
          <span style={{ padding: '0 8px', color: theme.colors.text.secondary }}>{v.current.text ?? 'Prometheus'}</span>
        </span>
      ))}
      <span style={{ marginLeft: 'auto' }} />
      <ToolbarButton icon="clock-nine" variant="canvas" isOpen={false}>{`${clock(from)} to ${clock(to)} UTC`}</ToolbarButton>
    </div>
  );
}

function Dashboard({ data }) {
  const column = (innerWidth - 2 * edge - 23 * gap) / 24;
  const box = ({ x, y, w, h }) => ({
    left: edge + x * (column + gap), top: (y - top) * rowHeight, width: w * (column + gap) - gap, height: h * rowHeight - gap,
  });
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ background: theme.colors.background.canvas }}>
        {top === 0 && <Bar />}
        <div style={{ position: 'relative', height: (bottom - top) * rowHeight + edge }}>
          {shown.map((panel) => (
            <div key={panel.id} style={{ position: 'absolute', ...box(panel.gridPos) }}>
              {panel.type === 'row' ? <div style={rowStyle}><Icon name="angle-down" />{panel.title}</div>
                : <Panel panel={panel} data={data[panel.id]} box={box(panel.gridPos)} />}
            </div>
          ))}
        </div>
      </div>
    </ThemeContext.Provider>
  );
}

// Charts measure their letters when they are drawn.
for (const [weight, name] of [['400', 'Regular'], ['500', 'Medium']]) {
  document.fonts.add(await new FontFace('Inter', `url(/fonts/inter/Inter-${name}.woff2)`, { weight }).load());
}
const all = shown.filter((panel) => panel.targets).map(async (panel) => [panel.id, await prepared(panel)]);
createRoot(document.getElementById('root')).render(<Dashboard data={Object.fromEntries(await Promise.all(all))} />);
