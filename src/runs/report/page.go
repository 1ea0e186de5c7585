package report

import (
	"fmt"
	"html/template"
	"io"
	"strings"

	"halognn/src/base/chart"
)

// page is the template of the HTML page. Its HTML is well-formed XML too, so that any XML parser
// can check it. While a job runs, the page in the browser replaces its elements that have an id by
// newer ones.
var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>halognn report: {{.Title}}</title>
{{.Head}}<style>
p.verdict { font-size: 1.15rem; margin: .3rem 0; overflow-wrap: anywhere; }
p.warning { border-left: 4px solid var(--c1); padding-left: .6rem; overflow-wrap: anywhere; }
section { min-width: 0; }
.words th, .words td { text-align: left; white-space: normal; vertical-align: top;
 max-width: 22rem; overflow-wrap: anywhere; }
div.plots { display: grid; grid-template-columns: minmax(0, 1fr); column-gap: 2.5rem; }
@media screen and (min-width: 64rem) {
 div.plots { grid-template-columns: repeat(2, minmax(0, 1fr)); }
}
details { margin: .35rem 0; } summary { cursor: pointer; }
details.fold > summary { font-weight: 600; padding: .3rem 0; border-bottom: 1px solid var(--rule);
 overflow-wrap: anywhere; }
.only { font-size: .9rem; color: var(--soft); } .only div { max-height: 24rem; }
pre { background: var(--stripe); padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere;
 max-height: 24rem; overflow-y: auto; }
button.copy { float: right; margin: .5rem; }
@media print { .only, button { display: none; } pre { max-height: none; } }
</style>
</head>
<body{{if .Live}} data-live="1"{{end}}>
<main>
<section id="head"><div class="figures">
<h1>halognn report: {{.Title}}</h1>
{{range .Verdict}}<p class="verdict">{{.}}</p>
{{end}}{{range .Warnings}}<p class="warning">{{.}}</p>
{{end}}</div></section>
{{define "table"}}<div class="wide"><table{{if not .Words}} class="sorts"{{end}}>
<thead><tr>{{range .Columns}}<th>{{.}}</th>{{end}}</tr></thead>
<tbody>{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody></table></div>{{end}}
{{define "figure"}}{{.Drawing}}
<p class="note">{{.Note}}</p>
<details class="only"><summary>in figures</summary>{{template "table" .}}</details>{{end}}
<div class="plots">
{{range .Curves}}<section id="plot-{{.ID}}">
<h2>{{.Title}}</h2>
{{template "figure" .}}
</section>
{{end}}
</div>
{{range .Tables -}}
<details class="fold{{if .Words}} words{{end}}" id="{{.ID}}"{{if .Open}} open=""{{end}}>
<summary>{{.Title}}{{if .Zeros}}: nothing but zeros{{end}}</summary>
{{template "table" .}}
{{if .Note}}<p class="note">{{.Note}}</p>{{end}}
</details>
{{end}}
{{range .Bars}}<details class="fold" id="plot-{{.ID}}">
<summary>{{.Title}}, drawn</summary>
{{template "figure" .}}
</details>
{{end}}
{{range $i, $job := .Jobs}}<details class="fold" id="job-{{$i}}">
<summary>Run it again: {{.Name}}</summary>
<div class="figures"><p class="note">Save this as config.yaml:</p>
<div><button class="copy">copy</button><pre>{{.Config}}</pre></div>
<div><button class="copy">copy</button><pre>{{.Command}}</pre></div></div>
</details>
{{end}}
</main>
</body>
</html>
`))

// section is a table or a plot of the page.
type section struct {
	ID, Title, Note string
	Open            bool
	Zeros           bool // all numbers are zero
	Words           bool // cells are words, not numbers
	Drawing         template.HTML
	Columns         []string
	Rows            [][]string
}

// The type again holds what a reader needs to repeat a run: the command, and the config that the
// run wrote.
type again struct{ Name, Command, Config string }

func againOf(r *Run) again {
	command := "halognn train --config config.yaml --set run.dir=runs/again"
	if n, _ := r.ranks(); n > 1 {
		command = fmt.Sprintf("mpirun -np %d %s", n, command)
	}
	return again{r.Name, command, r.source}
}

func runsWord(runs []*Run) string {
	if len(runs) == 1 {
		return "one run, " + runs[0].Name
	}
	return fmt.Sprintf("%d runs", len(runs))
}

// mostDamages is the largest number of damaged records that are listed for a run. Further records
// are only counted.
const mostDamages = 5

// warnings returns warnings for the top of the page: about damaged records, unfinished runs, and
// runs with several caches.
func warnings(runs []*Run) (out []string) {
	for _, r := range runs {
		for i, fault := range r.Damaged {
			if i == mostDamages {
				out = append(out, fmt.Sprintf("%s: %d more records could not be read", r.Name,
					len(r.Damaged)-i))
				break
			}
			out = append(out, r.Name+": left out: "+fault)
		}
		if r.Summary == nil {
			out = append(out, fmt.Sprintf("%s: %s; it has no summary, so the report shows the "+
				"part that ran",
				r.Name, r.state()))
		}
		if r.tried() {
			out = append(out, r.Name+": cache.policy auto: its numbers include the epochs in "+
				"which it tried several caches")
		}
	}
	return out
}

func writePage(w io.Writer, runs []*Run, live bool) error {
	data := struct {
		Title                string
		Verdict, Warnings    []string
		Head                 template.HTML
		Tables, Curves, Bars []section
		Jobs                 []again
		Live                 bool
	}{
		Title: runsWord(runs), Verdict: verdict(runs), Warnings: warnings(runs),
		Head: template.HTML(chart.Head()), Live: live,
	}
	for _, t := range tablesOf(runs) {
		data.Tables = append(data.Tables, section{
			ID: t.id, Title: t.title, Note: strings.TrimSpace(t.note + " " +
				t.why), Columns: t.columns, Rows: t.rows,
			Zeros: t.allZero(), Words: t.words, Open: t.id == "seeds" || t.id == "runs",
		})
	}
	for _, c := range chartsOf(runs) {
		columns, rows := c.Table()
		// this conversion is safe, because the program made the HTML and escaped every name in it
		s := section{ID: c.ID, Title: c.Title, Note: c.Note, Drawing: template.HTML(c.HTML()),
			Columns: columns, Rows: rows}
		if _, bars := c.Drawing.(*chart.Bars); bars {
			data.Bars = append(data.Bars, s)
		} else {
			data.Curves = append(data.Curves, s)
		}
	}
	for _, r := range runs[:min(len(runs), mostCards)] {
		data.Jobs = append(data.Jobs, againOf(r))
	}
	return page.Execute(w, data)
}
