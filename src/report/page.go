package report

import (
	"fmt"
	"html/template"
	"io"

	"halognn/src/chart"
)

// The page is well-formed XML too, so that any parser can check it.
var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>halognn report: {{.Title}}</title>
<style>
:root { --text: #222; --back: #fff; --rule: #d4d4d4; --soft: #5f5f5f; --stripe: #f6f6f6; }
@media (prefers-color-scheme: dark) { :root { --text: #ddd; --back: #16181c; --rule: #3a3d42; --soft: #a0a0a0; --stripe: #1e2126; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
p.verdict { font-size: 1.05rem; margin: .3rem 0; overflow-wrap: anywhere; } a { color: inherit; }
nav { font-size: .9rem; margin: 1rem 0; } nav p { margin: .15rem 0; } nav a { margin-right: .9rem; white-space: nowrap; }
section { min-width: 0; } section.words th, section.words td { text-align: left; white-space: normal; vertical-align: top; max-width: 22rem; overflow-wrap: anywhere; }
section.words td:first-child { min-width: 5rem; } div.plots { display: grid; grid-template-columns: minmax(0, 1fr); column-gap: 2.5rem; }
@media screen and (min-width: 84rem) { body { max-width: 96rem; } div.tables { display: flex; flex-wrap: wrap; column-gap: 3rem; } div.tables section { max-width: 100%; } p.note { max-width: 44rem; } div.plots { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
p.note { color: var(--soft); margin: .4rem 0; font-size: .9rem; }
p.warning { border-left: 4px solid #d55e00; padding-left: .6rem; overflow-wrap: anywhere; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { padding: .22rem .6rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; vertical-align: bottom; }
th { white-space: normal; font-weight: 600; } th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }
tbody tr:nth-child(even) { background: var(--stripe); }
figure { margin: 0; overflow-x: auto; } svg { width: 100%; min-width: 34rem; height: auto; display: block; }
details { font-size: .9rem; color: var(--soft); } details div { max-height: 24rem; overflow: auto; } summary { cursor: pointer; }
@media print { :root { color-scheme: light; --text: #000; --back: #fff; --rule: #bbb; --soft: #444; --stripe: #fff; }
  body { font-size: 10pt; margin: 0; max-width: none; } nav, details { display: none; } section { break-inside: avoid; }
  h2 { break-after: avoid; } div.wide { overflow: visible; } table { font-size: 7.5pt; } p.note { font-size: 8.5pt; } th, td { padding: .1rem .3rem; } }
{{.Style}}
</style>
</head>
<body>
<h1>halognn report: {{.Title}}</h1>
{{range .Verdict}}<p class="verdict">{{.}}</p>
{{end}}
<nav>
<p>Tables: {{range .Tables}}<a href="#{{.ID}}">{{.Title}}</a> {{end}}</p>
{{if .Charts}}<p>Plots: {{range .Charts}}<a href="#plot-{{.ID}}">{{.Title}}</a> {{end}}</p>{{end}}
</nav>
{{range .Warnings}}<p class="warning">{{.}}</p>
{{end}}
{{define "table"}}<div class="wide"><table>
<thead><tr>{{range .Columns}}<th>{{.}}</th>{{end}}</tr></thead>
<tbody>{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody></table></div>{{end}}
<div class="tables">
{{range .Tables}}<section id="{{.ID}}"{{if .Words}} class="words"{{end}}>
<h2>{{.Title}}</h2>
{{if .Folded}}<details><summary>nothing but zeros</summary>{{template "table" .}}</details>{{else}}{{template "table" .}}{{end}}
{{if .Note}}<p class="note">{{.Note}}</p>{{end}}
</section>
{{end}}
</div>
<div class="plots">
{{range .Charts}}<section id="plot-{{.ID}}">
<h2>{{.Title}}</h2>
<figure>{{.SVG}}</figure>
<p class="note">{{.Note}}</p>
<details><summary>in figures</summary>{{template "table" .}}</details>
</section>
{{end}}
</div>
</body>
</html>
`))

// section is a table or a plot of the page.
type section struct {
	ID, Title, Note string
	Folded          bool // a table of zeros
	Words           bool // cells are words, not numbers
	SVG             template.HTML
	Columns         []string
	Rows            [][]string
}

func runsWord(runs []*Run) string {
	if len(runs) == 1 {
		return "one run, " + runs[0].Name
	}
	return fmt.Sprintf("%d runs", len(runs))
}

// mostDamages is the largest number of damaged records listed for a run; the rest are counted.
const mostDamages = 5

// warnings returns warnings for the top of the page: about damaged records, unfinished runs, and
// runs with several caches.
func warnings(runs []*Run) (out []string) {
	for _, r := range runs {
		for i, fault := range r.Damaged {
			if i == mostDamages {
				out = append(out, fmt.Sprintf("%s: %d more that could not be read", r.Name,
					len(r.Damaged)-i))
				break
			}
			out = append(out, r.Name+": left out: "+fault)
		}
		if r.Summary == nil {
			out = append(out, fmt.Sprintf("%s: %s; it has no summary, and what it got to is shown",
				r.Name, r.state()))
		}
		if r.tried() {
			out = append(out, r.Name+": cache.policy auto: its numbers include the epochs in "+
				"which it tried several caches")
		}
	}
	return out
}

func writePage(w io.Writer, runs []*Run, tables []table, charts []*chart.Chart) error {
	data := struct {
		Title          string
		Verdict        []string
		Warnings       []string
		Style          template.CSS
		Tables, Charts []section
	}{
		Title: runsWord(runs), Verdict: verdict(runs), Warnings: warnings(runs),
		Style: template.CSS(chart.Style),
	}
	for _, t := range tables {
		data.Tables = append(data.Tables, section{
			ID: t.id, Title: t.title, Note: t.note, Columns: t.columns, Rows: t.rows,
			Folded: t.allZero(), Words: t.words,
		})
	}
	for _, c := range charts {
		columns, rows := c.Table()
		// The program made this SVG, and every name in it is escaped.
		data.Charts = append(data.Charts,
			section{ID: c.ID, Title: c.Title, Note: c.Note, SVG: template.HTML(c.SVG()),
				Columns: columns, Rows: rows})
	}
	return page.Execute(w, data)
}
