#include "framework/experiment/report/page.h"

namespace brim::experiment {

std::string_view page_style() {
  return R"css(
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --card: #ffffff; --text: #16191d; --soft: #5c6570; --edge: #dfe3e8; --grid: #e6e9ed;
  --mark: #fff3d6; --good: #15803d; --warn: #b45309;
  --r0: #2563eb; --r1: #d9600a; --r2: #15803d; --r3: #be185d; --r4: #7c3aed; --r5: #0e7490; --r6: #a16207; --r7: #57534e;
  --p0: #dc2626; --p1: #f59e0b; --p2: #a3a300; --p3: #3b82f6; --p4: #4f46e5; --p5: #c026d3; --p6: #16a34a; --p7: #92400e; --p8: #0891b2; --p9: #9ca3af;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1116; --card: #171b22; --text: #e6e9ee; --soft: #98a2b0; --edge: #2a313b; --grid: #262d37;
    --mark: #3b3013; --good: #4ade80; --warn: #fbbf24;
    --r0: #60a5fa; --r1: #fb923c; --r2: #4ade80; --r3: #f472b6; --r4: #a78bfa; --r5: #22d3ee; --r6: #facc15; --r7: #a8a29e;
    --p0: #f87171; --p1: #fbbf24; --p2: #d9d943; --p3: #60a5fa; --p4: #818cf8; --p5: #e879f9; --p6: #4ade80; --p7: #d6a374; --p8: #22d3ee; --p9: #6b7280;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 12px; }
h3, .card h2 { font-size: 14px; margin: 0; font-weight: 600; overflow-wrap: anywhere; }
p { margin: 6px 0; }
.soft, .unit, .note, .x-unit { color: var(--soft); }
.note, .x-unit { font-size: 12px; margin: 2px 0 0; }
.x-unit { text-align: right; }
.unit { font-size: 12px; margin-left: 6px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px; margin-top: 18px; }
.tile, .chart, .card { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; }
.tile { padding: 12px 14px; }
.tile b { display: block; font-size: 22px; line-height: 1.25; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.tile span { font-size: 12px; color: var(--soft); }
.tile small { display: block; font-size: 12px; color: var(--soft); }
.grid2 { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; }
.chart { margin: 0; padding: 14px 16px 12px; min-width: 0; }
figcaption { display: flex; align-items: baseline; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12px; margin: 4px 0 8px; min-height: 18px; }
.legend span { display: inline-flex; align-items: center; gap: 6px; min-width: 0; overflow-wrap: anywhere; }
i.r0, i.r1, i.r2, i.r3, i.r4, i.r5, i.r6, i.r7, i.p0, i.p1, i.p2, i.p3, i.p4, i.p5, i.p6, i.p7, i.p8, i.p9 {
  flex: none; display: inline-block; width: 14px; height: 4px; border-radius: 2px; background: var(--c); }
i.p0, i.p1, i.p2, i.p3, i.p4, i.p5, i.p6, i.p7, i.p8, i.p9 { width: 10px; height: 10px; border-radius: 3px; }
i.dashed { background: repeating-linear-gradient(90deg, var(--c) 0 4px, transparent 4px 6px); }
.r0 { --c: var(--r0); } .r1 { --c: var(--r1); } .r2 { --c: var(--r2); } .r3 { --c: var(--r3); }
.r4 { --c: var(--r4); } .r5 { --c: var(--r5); } .r6 { --c: var(--r6); } .r7 { --c: var(--r7); }
.p0 { --c: var(--p0); } .p1 { --c: var(--p1); } .p2 { --c: var(--p2); } .p3 { --c: var(--p3); } .p4 { --c: var(--p4); }
.p5 { --c: var(--p5); } .p6 { --c: var(--p6); } .p7 { --c: var(--p7); } .p8 { --c: var(--p8); } .p9 { --c: var(--p9); }
.plot { display: grid; grid-template-columns: 52px minmax(0, 1fr); font-size: 11px; color: var(--soft); font-variant-numeric: tabular-nums; }
.plot > .area { position: relative; height: 210px; cursor: crosshair; touch-action: pan-y; }
.plot svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
.ys { position: relative; }
.ys span { position: absolute; right: 8px; transform: translateY(-50%); white-space: nowrap; }
.xs { grid-column: 2; position: relative; height: 20px; }
.xs span { position: absolute; top: 4px; transform: translateX(-50%); white-space: nowrap; }
svg path { fill: none; vector-effect: non-scaling-stroke; }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .line { stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
svg .dashed { stroke-dasharray: 5 4; }
svg .dots { stroke: var(--c); stroke-width: 6; stroke-linecap: round; }
svg .band { fill: var(--c); opacity: .16; }
svg .area { fill: var(--c); }
svg .mark { stroke: var(--c, var(--soft)); stroke-width: 1; stroke-dasharray: 2 3; }
#axis { display: flex; flex-wrap: wrap; gap: 4px 16px; align-items: center; margin: 30px 0 0; padding: 0; border: 0; font-size: 13px; }
#axis[hidden] { display: none; }
#axis legend { float: left; padding: 0; color: var(--soft); }
#axis label { display: inline-flex; gap: 6px; align-items: center; min-height: 28px; cursor: pointer; }
#axis input { accent-color: var(--r0); margin: 0; width: 16px; height: 16px; }
.legend button, .tool { font: inherit; color: inherit; background: none; border: 0; padding: 0 2px; margin: 0; cursor: pointer; border-radius: 4px; text-align: left; min-height: 24px; }
.legend button { display: inline-flex; align-items: center; gap: 6px; min-width: 0; overflow-wrap: anywhere; }
.legend button[aria-pressed=false] { opacity: .45; text-decoration: line-through; }
.tools { margin-left: auto; display: flex; gap: 6px; flex: none; font-size: 12px; color: var(--soft); }
.tool { border: 1px solid var(--edge); padding: 0 8px; }
.tool[aria-pressed=true] { color: var(--text); background: var(--grid); }
:focus-visible { outline: 2px solid var(--r0); outline-offset: 2px; }
.range { position: absolute; top: 0; bottom: 0; background: var(--r0); opacity: .15; pointer-events: none; }
#smoothing { font-size: 13px; margin: 6px 0 0; }
#smoothing label { display: inline-flex; gap: 10px; align-items: center; min-height: 28px; color: var(--soft); }
#smoothing input { accent-color: var(--r0); width: 160px; }
#smoothing[hidden] { display: none; }
.log { max-height: 320px; overflow: auto; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; min-height: 24px; cursor: pointer; }
th[aria-sort=ascending] button::after { content: " ↑"; }
th[aria-sort=descending] button::after { content: " ↓"; }
a { color: var(--r0); }
#live { position: sticky; top: 0; z-index: 1; margin: 0; padding: 6px 0; background: var(--page); color: var(--soft); font-size: 13px; }
#live.lost { color: var(--warn); font-weight: 600; }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(104px, 1fr)); gap: 14px; margin: 10px 0 6px; padding: 0; list-style: none; }
.samples li { min-width: 0; font-size: 12px; line-height: 1.4; font-variant-numeric: tabular-nums; }
.samples img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain; border-radius: 6px; background: var(--grid); margin-bottom: 4px; image-rendering: pixelated; }
.samples span { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.right { color: var(--good); font-weight: 600; }
.wrong { color: var(--warn); font-weight: 600; }
.cursor { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--soft); display: none; pointer-events: none; }
#tip { position: fixed; z-index: 2; display: none; pointer-events: none; max-width: 300px; padding: 8px 10px; font-size: 12px;
  background: var(--card); border: 1px solid var(--edge); border-radius: 8px; box-shadow: 0 4px 16px rgb(0 0 0 / .18); }
#tip div { display: flex; gap: 6px; align-items: center; }
#tip div b { margin-left: auto; padding-left: 12px; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { display: flex; height: 22px; border-radius: 6px; overflow: hidden; background: var(--grid); }
.bar i { display: block; height: 100%; width: auto; border-radius: 0; background: var(--c); }
.times { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; align-items: stretch; margin-bottom: 14px; }
.card { padding: 14px 16px; min-width: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; width: 100%; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--edge); vertical-align: top; }
tr:last-child > * { border-bottom: 0; }
th { font-weight: 500; color: var(--soft); white-space: nowrap; }
thead th { font-size: 12px; }
td { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.scroll td { min-width: 8em; }
.scroll td.n { min-width: 0; }
td.n, th.n { text-align: right; white-space: nowrap; padding-right: 0; padding-left: 10px; }
tr.differs td { background: var(--mark); }
.best { color: var(--good); font-weight: 600; }
.findings { margin: 18px 0 0; padding: 12px 16px; border-left: 4px solid var(--warn); }
.findings.fine { border-left-color: var(--good); }
.findings ul { margin: 4px 0 0; padding-left: 18px; }
.stack { display: grid; gap: 14px; margin-top: 14px; }
.caption { display: flex; align-items: baseline; }
.treemap { position: relative; aspect-ratio: 2.4; margin-top: 10px; border-radius: 6px; overflow: hidden; background: var(--grid); }
.cell { position: absolute; overflow: hidden; font-size: 11px; line-height: 1.3; border: 1px solid var(--card);
  background: color-mix(in srgb, var(--c) 32%, var(--card)); }
.cell span { display: block; padding: 3px 5px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.plot > .tall { height: 340px; cursor: default; }
svg .dot { stroke: var(--c); stroke-linecap: round; opacity: .6; }
pre { margin: 0; font: 12px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin-top: 10px; }
summary { cursor: pointer; font-weight: 500; padding: 6px 0; }
footer { margin-top: 40px; font-size: 12px; color: var(--soft); }
@media (max-width: 760px) {
  main { padding: 18px 12px 40px; }
  h1 { font-size: 22px; }
  .grid2, .times { grid-template-columns: minmax(0, 1fr); }
  .chart, .card { padding: 12px; }
  .plot { grid-template-columns: 44px minmax(0, 1fr); }
  .plot > .area { height: 180px; }
  .plot > .tall { height: 260px; }
  .treemap { aspect-ratio: 1; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .tile b { font-size: 19px; }
}
@media print { .chart, .card { break-inside: avoid; } }
)css";
}

}  // namespace brim::experiment
