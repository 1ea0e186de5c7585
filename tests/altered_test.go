//go:build e2e

package tests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
)

// alter changes the elements of a NumPy file, but not its entry in meta.json.
func alter[T npy.Element](t *testing.T, path string, change func(x []T)) {
	t.Helper()
	a, err := npy.Map[T](path)
	if err != nil {
		t.Fatal(err)
	}
	x, shape := slices.Clone(a.Data), a.Shape
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	change(x)
	if _, err := npy.WriteFile(path, x, shape...); err != nil {
		t.Fatal(err)
	}
}

// every returns a change that sets every n-th element.
func every[T npy.Element](n int, value T) func(x []T) {
	return func(x []T) {
		for i := 0; i < len(x); i += n {
			x[i] = value
		}
	}
}

// inner returns a change of all elements but the first and the last, which Open checks.
func inner(change func(x []int64)) func(x []int64) {
	return func(x []int64) { change(x[1 : len(x)-1]) }
}

// alteration is a change to files that all ranks read and that `data.verify: sizes` does not
// detect.
type alteration struct {
	name  string
	alter func(t *testing.T, parts string)
	want  []string
}

var alterations = []alteration{
	{"sources below 0", func(t *testing.T, parts string) {
		alter(t, filepath.Join(parts, "indices.npy"), every[int32](7, -1))
	}, []string{"parts/indices.npy: altered", "in-neighbours of vertex",
		"comes from vertex -1: vertex out"}},
	{"sources beyond the last vertex", func(t *testing.T, parts string) {
		alter(t, filepath.Join(parts, "indices.npy"), every[int32](7, 3000))
	}, []string{"parts/indices.npy: altered", "in-neighbours of vertex",
		"comes from vertex 3000: vertex out"}},
	{"row pointers far away", func(t *testing.T, parts string) {
		alter(t, filepath.Join(parts, "indptr.npy"), inner(every[int64](7, 1<<62)))
	}, []string{"parts/indptr.npy: altered", "indptr"}},
	{"row pointers that fall", func(t *testing.T, parts string) {
		alter(t, filepath.Join(parts, "indptr.npy"), inner(slices.Reverse[[]int64]))
	}, []string{"parts/indptr.npy: altered", "indptr"}},
	{"row pointers below 0", func(t *testing.T, parts string) {
		alter(t, filepath.Join(parts, "indptr.npy"), inner(every[int64](7, -5)))
	}, []string{"parts/indptr.npy: altered", "indptr"}},
	{"training seeds that are none", func(t *testing.T, parts string) {
		alter(t, filepath.Join(parts, "train.npy"), every[int32](5, 3000))
	}, []string{"parts/train.npy: altered", "XXH64", " 3000: vertex out of range"}},
}

// sized returns the flags with which a command reads parts without comparing hashes.
func sized(parts string) []string {
	return []string{"--set", "data.parts=" + parts, "--set", "data.verify=sizes"}
}

// Every command that works on altered parts ends in order: with the exit code for damaged data, and
// a message that names the file, the vertex and the cure.
func TestAlteredPartsAreNamed(t *testing.T) {
	unlessShort(t)
	done := trained(t, smallParts.dir(t), 2)
	base := baseFile.dir(t)
	commands := map[string]func(parts, dir string) []string{
		"infer": func(parts, dir string) []string {
			args := []string{"infer", "--run", done.dir, "--out", filepath.Join(dir, "out.npy")}
			return append(append(args, "--ranks-in-process", "2"), sized(parts)...)
		},
		"blocks": func(parts, dir string) []string {
			args := []string{"blocks", "--config", base, "--ranks", "2", "--steps", "2"}
			return append(append(args, "--out", filepath.Join(dir, "out")), sized(parts)...)
		},
		"simulate": func(parts, dir string) []string {
			return []string{"simulate", "--parts", parts, "--ranks", "2", "--set",
				"sample.fanouts=5,3", "--set", "model.layers=2", "--set", "sample.batch=96",
				"--alphas", "0.1", "--epochs", "1", "--out", filepath.Join(dir, "out")}
		},
		"plan": func(parts, dir string) []string {
			return append([]string{"plan", "--config", base, "--ranks", "2"}, sized(parts)...)
		},
	}
	policies := []string{"none", "vip", "sim", "prefetch", "lookahead", "auto"}
	for _, policy := range policies {
		commands["train, cache "+policy] = func(parts, dir string) []string {
			return training(t, parts, dir, "data.verify=sizes", "cache.policy="+policy,
				"run.ranks_per_node=1")
		}
	}
	t.Run("group", func(t *testing.T) {
		for i, a := range alterations {
			for name, args := range commands {
				cache, trains := strings.CutPrefix(name, "train, cache ")
				if trains && cache != "none" && cache != policies[1+i%(len(policies)-1)] {
					continue // each cache meets some alterations, and each alteration some caches
				}
				t.Run(a.name+"/"+name, func(t *testing.T) {
					t.Parallel()
					dir := t.TempDir()
					parts := copyOf(t, smallParts.dir(t), dir, "parts")
					a.alter(t, parts)
					r := halognn(t).run(t, args(parts, dir)...)
					remove(t, filepath.Join(dir, "out")) // a run that had begun leaves its log
					want := append(slices.Clone(a.want), "partition again", "halognn check "+parts,
						"data.verify=hashes")
					badInput{code: badData, want: want}.check(t, dir, r)
				})
			}
		}
	})
}

// Damage that shows only after the first step: in validation, labels, the final test, and the ids
// of predictions.
func TestAlteredListsAndLabelsAreNamed(t *testing.T) {
	unlessShort(t)
	for _, c := range []struct {
		name string
		set  []string
		data handmade
		alteration
	}{
		{"labels of training seeds", nil, handmade{},
			alteration{alter: func(t *testing.T, parts string) {
				alter(t, filepath.Join(parts, "labels.npy"), every[int32](1, 99))
			}, want: []string{"parts/labels.npy: altered", "label of vertex 0 is 99", "label 99"}}},
		{"labels of validated vertices", nil, handmade{classes: 2}, alteration{alter: func(
			t *testing.T, parts string,
		) {
			valid, err := npy.Map[int32](filepath.Join(parts, "valid.npy"))
			if err != nil {
				t.Fatal(err)
			}
			defer valid.Close()
			alter(t, filepath.Join(parts, "labels.npy"), func(x []int32) {
				for _, v := range valid.Data {
					x[v] = 50
				}
			})
		}, want: []string{"parts/labels.npy: altered", "is 50"}}},
		{"validated vertices", nil, handmade{}, alteration{alter: func(t *testing.T, parts string) {
			alter(t, filepath.Join(parts, "valid.npy"), every[int32](1, -1))
		}, want: []string{"parts/valid.npy: altered", "valid split, entry 0: vertex -1"}}},
		{"validated vertices of a mlp", []string{"model.kind=mlp"}, handmade{},
			alteration{alter: func(
				t *testing.T, parts string,
			) {
				alter(t, filepath.Join(parts, "valid.npy"), every[int32](1, 4000))
			}, want: []string{"parts/valid.npy: altered", "vertex 4000"}}},
		{"tested vertices", nil, handmade{}, alteration{alter: func(t *testing.T, parts string) {
			alter(t, filepath.Join(parts, "test.npy"), every[int32](1, 1<<31-1))
		}, want: []string{"parts/test.npy: altered", "vertex 2147483647"}}},
		{"training seeds given twice", nil, handmade{},
			alteration{alter: func(t *testing.T, parts string) {
				alter(t, filepath.Join(parts, "train.npy"), every[int32](1, 5))
			}, want: []string{"parts/train.npy: altered", "seed 5 is given twice"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data := c.data.write(t, filepath.Join(dir, "data"))
			parts := copyOf(t, partitioned(t, data, 2, "random", "--allow-imbalance"), dir, "parts")
			c.alter(t, parts)
			r := halognn(t).run(t,
				training(t, parts, dir,
					append(c.set, "data.verify=sizes", "sample.batch=20")...)...)
			remove(t, filepath.Join(dir, "out"))
			badInput{code: badData, want: append(c.want, "halognn check "+parts)}.check(t, dir, r)
		})
	}
}

// first keeps the first message of a job in which several ranks fail on their own at the same time.
func (r result) first() result {
	const begin = "\nhalognn: "
	text := "\n" + r.err
	if i := strings.Index(text, begin); i >= 0 {
		one, _, _ := strings.Cut(text[i+len(begin):], begin)
		r.err = begin[1:] + one
	}
	return r
}

func TestAlteredPartsAreNamedUnderMPI(t *testing.T) {
	unlessShort(t)
	launcher(t)
	for _, a := range alterations {
		t.Run(a.name, func(t *testing.T) {
			dir := t.TempDir()
			parts := copyOf(t, smallParts.dir(t), dir, "parts")
			a.alter(t, parts)
			args := trainArgs(t, parts, filepath.Join(dir, "out"), "data.verify=sizes",
				"run.ranks_per_node=1")
			r := startMPI(t, 2, halognn(t).path, args...).wait(t)
			remove(t, filepath.Join(dir, "out"))
			badInput{code: badData, want: a.want}.checkEnd(t, dir, r.first())
		})
	}
}
