package report

import (
	"html/template"
	"io"
)

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>halognn report</title>
<style>
:root { --text: #222; --back: #fff; --rule: #ccc; --quiet: #666; --stripe: #f6f6f6; }
@media (prefers-color-scheme: dark) { :root { --text: #ddd; --back: #16181c; --rule: #444; --quiet: #999; --stripe: #1e2126; } }
@media print { :root { --text: #000; --back: #fff; --rule: #bbb; --quiet: #444; --stripe: #fff; } section { break-inside: avoid; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
p.note { color: var(--quiet); margin: .3rem 0; max-width: 60rem; }
p.damaged { border-left: 4px solid #d55e00; padding-left: .6rem; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .87rem; }
th, td { padding: .22rem .6rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tbody tr:nth-child(even) { background: var(--stripe); }
figure { margin: 0; } svg { width: 100%; max-width: 52rem; height: auto; display: block; }
{{.Style}}
</style>
</head>
<body>
<h1>halognn report: {{len .Runs}} run{{if gt (len .Runs) 1}}s{{end}}</h1>
{{range .Runs}}{{if .Damaged}}<p class="damaged">{{.Name}}: {{.Damaged}}</p>
{{end}}{{if not .Summary}}<p class="damaged">{{.Name}} has not finished: it has no summary.json. What it got to is shown.</p>
{{end}}{{end}}
{{range .Tables}}<section id="{{.ID}}">
<h2>{{.Title}}</h2>
<div class="wide"><table>
<thead><tr>{{range .Columns}}<th>{{.}}</th>{{end}}</tr></thead>
<tbody>{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody></table></div>
{{if .Note}}<p class="note">{{.Note}}</p>{{end}}
</section>
{{end}}
{{range .Charts}}<section id="plot-{{.ID}}">
<h2>{{.Title}}</h2>
<figure>{{.SVG}}</figure>
{{if .Note}}<p class="note">{{.Note}}</p>{{end}}
</section>
{{end}}
</body>
</html>
`))

type pageTable struct {
	ID, Title, Note string
	Columns         []string
	Rows            [][]string
}

type pageChart struct {
	ID, Title, Note string
	SVG             template.HTML
}

func writePage(w io.Writer, runs []*Run, tables []table, charts []*chart) error {
	data := struct {
		Runs   []*Run
		Style  template.CSS
		Tables []pageTable
		Charts []pageChart
	}{Runs: runs, Style: style}
	for _, t := range tables {
		data.Tables = append(data.Tables, pageTable{t.id, t.title, t.note, t.columns, t.rows})
	}
	for _, c := range charts {
		// The SVG is made here, with every name in it escaped.
		data.Charts = append(data.Charts, pageChart{c.id, c.title, c.note, template.HTML(c.svg(""))})
	}
	return page.Execute(w, data)
}
