package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/runs/config"
	"halognn/src/topology/partition"
	"halognn/src/topology/partition/assignment"
	"halognn/src/topology/partition/kaminpar"
	"halognn/src/topology/partition/metis"
)

// cutting is the partition method of --method, with the flags that belong to it.
type cutting struct {
	method     string
	assignment string
	keep       bool
	threads    int
}

// methodsOf lists the values of --method with their meaning.
var methodsOf = words{
	{"metis", "best cut, most memory"},
	{"kaminpar", "as good in a third of the memory; needs pip install kaminpar"},
	{"ldg", "streaming"}, {"random", ""}, {"contiguous", ""},
	{"file", "the parts of --assignment"},
	{"auto", "metis where it fits, else kaminpar where it is installed, else ldg"},
}

// words are the values of a flag, with the meaning of each.
type words []struct{ word, means string }

func (w words) list() (all []string) {
	for _, of := range w {
		all = append(all, of.word)
	}
	return all
}

func (m *cutting) flags(c *cobra.Command) {
	var meanings []string
	for _, of := range methodsOf {
		meanings = append(meanings, strings.TrimSuffix(of.word+": "+of.means, ": "))
	}
	f := c.Flags()
	f.StringVar(&m.method, "method", "metis", strings.Join(meanings, "; "))
	f.StringVar(&m.assignment, "assignment", "", "--method file: a file with the part of each "+
		"vertex, one a line as in METIS's GRAPH.part.K, or .npy")
	f.BoolVar(&m.keep, "keep", false, "--method file: leave parts as they are, balanced or not")
	f.IntVar(&m.threads, "threads", 1, "--method kaminpar: threads to use; several are faster, "+
		"but parts then differ from run to run")
}

// check returns an error for each fault of the flags.
func (m *cutting) check(c *cobra.Command) error {
	var faults []error
	fault := func(format string,
		args ...any) {
		faults = append(faults, fmt.Errorf(format, args...))
	}
	if words := methodsOf.list(); !slices.Contains(words, m.method) {
		fault("--method %s is unknown; use %s", m.method, config.OrList(words))
	}
	file := m.method == "file"
	if file && m.assignment == "" {
		fault("--method file needs --assignment: %s", c.Flag("assignment").Usage)
	}
	for _, flag := range []string{"assignment", "keep"} {
		if !file && c.Flags().Changed(flag) {
			fault("--%s is for --method file only; leave it out", flag)
		}
	}
	if own := m.method == "kaminpar" || m.method == "auto"; !own && c.Flags().Changed("threads") {
		fault("--threads is for --method kaminpar and auto only; leave it out")
	}
	if m.threads < 1 || m.threads > config.MaxThreads {
		fault("--threads is %d; it must be 1 to %d", m.threads, config.MaxThreads)
	}
	return errors.Join(faults...)
}

func (m *cutting) weighs() bool { return m.method != "random" && m.method != "contiguous" }

// table returns all methods by name. The method kaminpar writes files beside dir; the function
// cleanUp removes them.
func (m *cutting) table(dir string) (methods map[string]partition.Func, cleanUp func()) {
	scratch := ""
	methods = partition.Methods()
	methods["metis"] = metis.KWay
	methods["file"] = assignment.File(m.assignment, m.keep)
	methods["kaminpar"] = kaminpar.KWay(m.threads, func() (_ string, err error) {
		scratch, err = dataset.Begin(dir + ".kaminpar")
		return scratch, err
	})
	return methods, func() {
		if scratch != "" {
			dataset.Discard(scratch)
		}
	}
}

// choose replaces --method auto by a method that fits the memory, and prints why.
func (m *cutting) choose(c *cobra.Command, d *dataset.Dataset) error {
	if m.method != "auto" {
		return nil
	}
	free, err := mem.FileHeadroom()
	if err != nil {
		return err
	}
	need := partition.Memory("metis", d.Meta.Vertices, d.Meta.Edges)
	_, missing := kaminpar.Find()
	why := fmt.Sprintf("METIS would take about %.1f GB, and %.1f GB are free", gb(need), gb(free))
	if !metis.Fits(d.Meta.Edges) {
		why = fmt.Sprintf("METIS was built with 32-bit indices, which cannot count %d edges",
			d.Meta.Edges)
	}
	if !metis.Available {
		why = "this program was built without METIS, which libmetis-dev and `make build` add"
	}
	switch {
	case metis.Available && metis.Fits(d.Meta.Edges) && need <= free:
		m.method = "metis"
		out(c, "method metis: it takes about %.1f GB, and %.1f GB are free\n", gb(need), gb(free))
	case missing == nil:
		m.method = "kaminpar"
		out(c, "method kaminpar: %s\n", why)
	default:
		m.method = "ldg"
		out(c, "method ldg, which cuts about twice as many edges as others: %s. kaminpar (`pip "+
			"install kaminpar` or `make setup-kaminpar`) would take about %.1f GB\n", why,
			gb(partition.Memory("kaminpar", d.Meta.Vertices, d.Meta.Edges)))
	}
	return nil
}

// cuttingNote says how much memory the methods take on a graph of the given sizes.
func cuttingNote(vertices, edges int64) string {
	need := func(method string) float64 { return gb(partition.Memory(method, vertices, edges)) }
	limit := ""
	if !metis.Fits(edges) {
		limit = " and indices of 64 bits"
	}
	return fmt.Sprintf("`partition` takes about %.1f GB with --method metis%s, %.1f GB with "+
		"kaminpar and %.1f GB with ldg, and page cache for the graph",
		need("metis"), limit, need("kaminpar"), need("ldg"))
}

func gb(bytes int64) float64 { return float64(bytes) / 1e9 }
