"""Style of the report page: light or dark by the reader's preference, from phone to desktop width."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--back:#f6f7f9;--card:#fff;--text:#1b2330;--dim:#56606f;--line:#dde2e9;--bad:#a3231a;
--a:#2f6fde;--b:#0d8a7f;--c:#c2620a}
@media (prefers-color-scheme:dark){:root{--back:#11151b;--card:#1a2029;--text:#e6eaf0;--dim:#a2adbb;--line:#2d3643;
--bad:#ff9a8f;--a:#79a8ff;--b:#4fcabd;--c:#f0a35e}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:76rem;margin:0 auto;padding:1.4rem 1.2rem 3rem}
h1{font-size:1.45rem;line-height:1.3;margin:0 0 .2rem;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2.2rem 0 .7rem}
.dim{color:var(--dim)}.bad{color:var(--bad)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.2rem,1fr));gap:.7rem;margin-top:1.2rem}
.card,figure,details,.rows,.note{background:var(--card);border:1px solid var(--line);border-radius:10px}
.card{padding:.7rem .95rem;color:var(--dim)}
.at{white-space:nowrap}
.card b{display:block;font-size:1.28rem;line-height:1.35;color:var(--text);overflow-wrap:anywhere}
.note{margin:.8rem 0 0;padding:.6rem .95rem;overflow-wrap:anywhere}.note p{margin:.15rem 0}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(27rem,100%),1fr));gap:.8rem}
figure{margin:0;padding:.8rem .95rem;min-width:0}
figcaption{margin-bottom:.6rem;line-height:1.35;overflow-wrap:anywhere}figcaption .dim{font-size:.9em}
.frame{display:grid;grid-template-columns:auto minmax(0,1fr);gap:.25rem .6rem;color:var(--dim);font-size:.8rem}
.y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;line-height:1;margin:-.4em 0}
.x{grid-column:2;display:flex;justify-content:space-between;gap:.8rem;overflow-wrap:anywhere}
.x span:last-child{text-align:right}
.plot{height:9.5rem;background:linear-gradient(var(--line),var(--line)) 0 0/100% 1px no-repeat,
linear-gradient(var(--line),var(--line)) 0 50%/100% 1px no-repeat,
linear-gradient(var(--line),var(--line)) 0 100%/100% 1px no-repeat}
.plot svg{display:block;width:100%;height:100%}
.fill{opacity:.22}.fill.a{fill:var(--a)}.fill.b{fill:var(--b)}
.line{fill:none;stroke-width:1.6;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.line.a{stroke:var(--a)}.line.b{stroke:var(--b)}
.even{fill:none;stroke:var(--dim);stroke-width:1;stroke-dasharray:4 4;vector-effect:non-scaling-stroke}
rect.a{fill:var(--a)}rect.b{fill:var(--b)}rect:hover{opacity:.75}
.hit rect{fill:transparent}.hit rect:hover{fill:var(--text);opacity:.1}
.bars{display:grid;grid-template-columns:fit-content(45%) minmax(3rem,1fr) auto;gap:.4rem .8rem;align-items:center}
.bars div{display:contents}.bars span{overflow-wrap:anywhere;font-size:.92rem;line-height:1.3}
.bars span:last-child{color:var(--dim);text-align:right}
.bars i{display:block;height:.85rem;min-width:2px;border-radius:3px}
i.a{background:var(--a)}i.b{background:var(--b)}i.c{background:var(--c)}
td.k,span.k{font-family:ui-monospace,monospace;font-size:.88rem}
details{margin:.8rem 0;padding:.7rem .95rem}summary{cursor:pointer;overflow-wrap:anywhere}
details .grid{margin:.9rem 0 .3rem}details figure{background:var(--back)}
.rows{padding:.2rem 0;overflow-wrap:anywhere}
table{width:100%;border-collapse:collapse}
th,td{padding:.38rem .8rem;text-align:left;border-top:1px solid var(--line);unicode-bidi:isolate}
thead th{border-top:0;color:var(--dim);font-weight:600;overflow-wrap:normal}
.n{text-align:right;white-space:nowrap}.t{white-space:nowrap}td.k{min-width:9rem}
footer{margin-top:2rem;color:var(--dim);font-size:.9rem}
@media (max-width:48rem){main{padding:1rem .8rem 2rem}thead{display:none}
tr{display:block;padding:.45rem 0;border-top:1px solid var(--line)}tbody tr:first-child{border-top:0}
td,td.n,td.t,td.k{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.1rem .95rem;text-align:right;
white-space:normal}td::before{content:attr(data-label);color:var(--dim);font-family:system-ui,sans-serif;
text-align:left;white-space:nowrap}td.k{font-weight:600}
.plot{height:8rem}.x span:nth-child(2):not(:last-child){display:none}}
@media print{body{background:#fff}figure,details{break-inside:avoid}}
"""
