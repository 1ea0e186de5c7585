//go:build e2e

package tests

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"halognn/src/model/task"
)

// training returns the command line of a run on the parts that would write to dir/out.
func training(t *testing.T, parts, dir string, sets ...string) []string {
	t.Helper()
	return append(trainArgs(t, parts, filepath.Join(dir, "out"), sets...), "--ranks-in-process",
		"2")
}

// fifo replaces a file by a FIFO, which keeps its reader waiting.
func fifo(t *testing.T, path string) {
	t.Helper()
	remove(t, path)
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
}

// configured returns the command line of a run whose config file is the base config followed by
// text.
func configured(t *testing.T, dir, text string) []string {
	t.Helper()
	path := filepath.Join(dir, "run.yaml")
	write(t, path, []byte(baseConfig+text))
	return []string{"train", "--config", path, "--set", "run.dir=" + filepath.Join(dir, "out"),
		"--ranks-in-process", "2"}
}

func TestBadConfigs(t *testing.T) {
	unlessShort(t)
	set := func(sets ...string) func(*testing.T, string) []string {
		return func(t *testing.T,
			dir string) []string {
			return training(t, smallParts.dir(t), dir, sets...)
		}
	}
	file := func(text string) func(*testing.T, string) []string {
		return func(t *testing.T, dir string) []string { return configured(t, dir, text) }
	}
	for _, c := range []badInput{
		{"no file", func(t *testing.T, dir string) []string {
			return []string{"train", "--config", filepath.Join(dir, "none.yaml"),
				"--ranks-in-process", "2"}
		}, usage, []string{"none.yaml", "no such file"}},
		{"no --config", func(*testing.T,
			string) []string {
			return []string{"train", "--ranks-in-process", "2"}
		},
			usage, []string{"--config is missing", "inputs/"}},
		{"a FIFO", func(t *testing.T, dir string) []string {
			args := configured(t, dir, "")
			fifo(t, filepath.Join(dir, "run.yaml"))
			return args
		}, usage, []string{"run.yaml", "a FIFO"}},
		{"not YAML", file("data: [\n"), usage, []string{"run.yaml", "not valid YAML"}},
		{"an unknown key", file("data:\n  part: p\n"), usage,
			[]string{"run.yaml", "line 9", "data.part", "did you mean data.parts?"}},
		{"an unknown section", file("trian: {lr: 1}\n"), usage,
			[]string{"line 8", "unknown key trian", "did you mean train?"}},
		{"a wrong type", file("topology: {load: map}\ncache: {delta: often}\n"), usage,
			[]string{"line 9", "cache.delta", "often", "whole number"}},
		{"a value for a section", file("cache: none\n"), usage,
			[]string{"line 8", "cache is a section"}},
		{"a list for a number", file("cache: {delta: [1, 2]}\n"), usage,
			[]string{"line 8", "cache.delta is a list"}},
		{"no parts named", file(""), usage, []string{"data.parts is missing", "halognn partition"}},
		{"an unknown key on the command line", set("train.learning_rate=0.1"), usage,
			[]string{"--set train.learning_rate=0.1", "unknown key"}},
		{"a wrong type on the command line", set("train.lr=fast"), usage,
			[]string{"--set train.lr=fast", "must be a number"}},
		{"a setting without a value", set("train.lr"), usage,
			[]string{"--set train.lr", "section.key=value"}},
		{"all faults at once",
			set("train.lr=-1", "model.layers=0", "sample.batch=0", "model.kind=tree"), usage,
			[]string{"train.lr is -1", "model.layers is 0", "sample.batch is 0",
				`model.kind is "tree"`, "sage, gcn, gin, ", " or mlp"}},
		{"a home directory", set("run.dir=~/runs/first"), usage,
			[]string{"run.dir is ~/runs/first", "in full"}},
		{"a fanout of 0", set("sample.fanouts=5,0"), usage,
			[]string{"sample.fanouts[1] is 0", "at least 1"}},
		{"a fanout of more than all vertices", set("sample.fanouts=5,3000000000"), usage,
			[]string{"sample.fanouts[1] is 3000000000", "at most 2147483647"}},
		{"hops without end", set("cache.halo_hops=9000000000000000000"), usage,
			[]string{"cache.halo_hops is 9000000000000000000", "0 to 64"}},
		{"a drop of the learning rate that never comes",
			set("train.step_epochs=9000000000000000000"), usage,
			[]string{"train.step_epochs", "1 to 1000000000"}},
		{"fanouts of a relation that are no numbers", set("sample.relation_fanouts=cites=5,many"),
			usage, []string{"sample.relation_fanouts", "cites=5,many", "NAME=FANOUT,FANOUT"}},
		{"fanouts that are no numbers", set("sample.fanouts=5,many"), usage,
			[]string{"sample.fanouts", "5,many", "15,10,5"}},
		{"more fanouts than layers", set("sample.fanouts=5,5,5"), usage,
			[]string{"sample.fanouts has 3", "model.layers is 2", "one fanout per layer"}},
		{"fewer fanouts than layers", set("model.layers=4"), usage,
			[]string{"sample.fanouts has 2", "model.layers is 4"}},
		{"a dropout of 1", set("model.dropout=1"), usage, []string{"model.dropout is 1", "[0, 1)"}},
		{"a learning rate of NaN", set("train.lr=nan"), usage, []string{"train.lr"}},
		{"an infinite learning rate", set("train.lr=inf"), usage, []string{"train.lr"}},
		{"a step factor above 1", set("train.schedule=step", "train.step_factor=2"), usage,
			[]string{"step", "2"}},
		{"a cache where ranks share minibatches", set("parallel.mode=split", "cache.policy=vip"),
			usage, []string{"parallel.mode is split", "cache.policy vip", "cache.policy=none"}},
		{"streams of parts likewise", set("parallel.mode=split", "sample.streams=part"), usage,
			[]string{"parallel.mode is split", "sample.streams part", "sample.streams=rank"}},
		{"a cache where no row travels", set("parallel.mode=push-pull", "cache.policy=vip"), usage,
			[]string{"parallel.mode is push-pull", "cache.policy vip", "cache.policy=none"}},
		{"attention by columns", set("parallel.mode=push-pull", "model.kind=gat"), usage,
			[]string{"parallel.mode is push-pull", "model.kind gat", "not a sum over the columns"}},
		{"maxima by columns", set("parallel.mode=push-pull", "model.aggregation=max"), usage,
			[]string{"parallel.mode is push-pull", "model.aggregation max", "sage with means"}},
		{"an unknown SIMD level", set("compute.simd=neon"), usage,
			[]string{"compute.simd", "neon", "avx2"}},
		{"a flag of a later version", func(t *testing.T, dir string) []string {
			return append(training(t, smallParts.dir(t), dir), "--restart", dir)
		}, usage, []string{"--restart", "halognn train --help"}},
		{"a negative number of ranks", func(t *testing.T, dir string) []string {
			return append(training(t, smallParts.dir(t), dir), "--ranks-in-process", "-2")
		}, usage, []string{"--ranks-in-process is -2"}},
		{"a surplus argument",
			func(t *testing.T, dir string) []string {
				return append(training(t, smallParts.dir(t),
					dir), "more")
			},
			usage, []string{"more", "halognn train --help"}},
		{"an unknown command", func(*testing.T, string) []string { return []string{"trian"} },
			usage, []string{"trian", "train"}},
	} {
		t.Run(c.name, c.run)
	}
}

func TestBadParts(t *testing.T) {
	// broken copies the small parts, breaks them, and trains on them.
	broken := func(breaking func(t *testing.T, parts string), sets ...string) func(*testing.T,
		string) []string {
		return func(t *testing.T, dir string) []string {
			parts := copyOf(t, smallParts.dir(t), dir, "parts")
			breaking(t, parts)
			return training(t, parts, dir, sets...)
		}
	}
	for _, c := range []badInput{
		{"none", func(t *testing.T,
			dir string) []string {
			return training(t, filepath.Join(dir, "none"), dir)
		},
			badData, []string{"none", "halognn partition"}},
		{"none, by a path of another directory", func(t *testing.T, dir string) []string {
			return training(t, "parts/none", dir)
		}, badData, []string{"parts/none holds no parts", "a path that begins in"}},
		{"a dataset", func(t *testing.T,
			dir string) []string {
			return training(t, smallData.dir(t), dir)
		},
			badData, []string{"small/meta.json", "parts"}},
		{"a file is missing",
			broken(func(t *testing.T,
				parts string) {
				remove(t, filepath.Join(parts, "indices.npy"))
			}),
			badData, []string{"indices.npy", "no such file", "partition again"}},
		{"a FIFO in the stead of a file", broken(func(t *testing.T, parts string) {
			fifo(t, filepath.Join(parts, "train.npy"))
		}), badData, []string{"train.npy", "a FIFO", "regular file"}},
		{"a FIFO in the stead of meta.json", broken(func(t *testing.T, parts string) {
			fifo(t, filepath.Join(parts, "meta.json"))
		}), badData, []string{"meta.json", "a FIFO", "regular file"}},
		{"a part is missing",
			broken(func(t *testing.T,
				parts string) {
				remove(t, filepath.Join(parts, "part-0005"))
			}),
			badData, []string{"part-0005/features.npy", "no such file"}},
		{"a part is truncated",
			broken(func(t *testing.T,
				parts string) {
				truncate(t, filepath.Join(parts, "part-0003", "features.npy"), 5000)
			}),
			badData, []string{"part-0003/features.npy", "5000", "restore the file"}},
		{"a part is altered",
			broken(func(t *testing.T,
				parts string) {
				patch(t, filepath.Join(parts, "part-0007", "features.npy"), 9)
			}),
			badData, []string{"rank 1", "part-0007/features.npy", "altered", "restore the file"}},
		{"the topology is altered", broken(func(t *testing.T, parts string) {
			patch(t, filepath.Join(parts, "indices.npy"), 0xff, 0xff, 0xff, 0x7f)
		}),
			badData, []string{"rank 0", "indices.npy", "altered"}},
		{"parts swapped", broken(func(t *testing.T, parts string) {
			write(t, filepath.Join(parts, "part-0000", "features.npy"),
				read(t, filepath.Join(parts, "part-0003", "features.npy")))
		}), badData, []string{"part-0000/features.npy"}},
		{"a file is another's", broken(func(t *testing.T, parts string) {
			// original_id.npy has the size and type of labels.npy
			write(t, filepath.Join(parts, "labels.npy"),
				read(t, filepath.Join(parts, "original_id.npy")))
		}), badData, []string{"labels.npy", "altered"}},
		{"meta.json is of a later version", broken(func(t *testing.T, parts string) {
			replace(t, filepath.Join(parts, "meta.json"), `"format": 1`, `"format": 7`)
		}), badData, []string{"meta.json", "7"}},
		{"meta.json is cut off",
			broken(func(t *testing.T,
				parts string) {
				truncate(t, filepath.Join(parts, "meta.json"), 200)
			}),
			badData, []string{"meta.json"}},
		{"meta.json claims classes beyond reason", broken(func(t *testing.T, parts string) {
			replace(t, filepath.Join(parts, "meta.json"), `"classes": 5,`, `"classes": 2000000000,`)
		}), badData, []string{"parts/meta.json", "2000000000 classes are too many"}},
		{"meta.json claims vertices that no file has", broken(func(t *testing.T, parts string) {
			replace(t, filepath.Join(parts, "meta.json"), `"edges": `, `"edges": 99999999`)
		}), badData, []string{"parts/meta.json", "indices.npy", "99999999"}},
		{"a header claims more than the file has", broken(func(t *testing.T, parts string) {
			path := filepath.Join(parts, "indices.npy")
			header := string(read(t, path)[:128])
			replace(t, path, header,
				strings.Replace(header, "'shape': (", "'shape': (9", 1)[:127]+"\n")
		}), badData, []string{"parts/indices.npy", "truncated", "expected"}},
		{"not a multiple of the ranks", func(t *testing.T, dir string) []string {
			return append(training(t, smallParts.dir(t), dir), "--ranks-in-process", "3")
		}, badData, []string{"8 parts", "3 ranks", "run on 1, 2, 4, 8 ranks"}},
		{"more ranks than parts", func(t *testing.T, dir string) []string {
			return append(training(t, smallParts.dir(t), dir), "--ranks-in-process", "16")
		}, badData, []string{"8 parts", "16 ranks"}},
		{"no training seed", func(t *testing.T, dir string) []string {
			data := handmade{split: func(v int) [3]bool {
				return [3]bool{false, v%2 == 0,
					v%2 == 1}
			}}.write(t, filepath.Join(dir, "data"))
			return training(t, partitioned(t, data, 2, "random"), dir)
		}, badData, []string{"parts", "training seed", "split"}},
		{"no labels", func(t *testing.T, dir string) []string {
			write(t, filepath.Join(dir, "edges.txt"), []byte("1 2\n2 3\n3 4\n4 1\n"))
			data := filepath.Join(dir, "data")
			halognn(t).must(t, "import", "--format", "edgelist", "--in",
				filepath.Join(dir, "edges.txt"), "--out", data)
			return training(t, partitioned(t, data, 2, "random"), dir)
		}, badData, []string{"parts", "no labels"}},
		{"NaN features, and nobody checked", broken(func(t *testing.T, parts string) {
			for _, part := range []string{"part-0000", "part-0001", "part-0002", "part-0003"} {
				path := filepath.Join(parts, part, "features.npy")
				data := read(t, path)
				for i := 128; i+4 <= len(data); i += 4 {
					copy(data[i:], []byte{0, 0, 0xc0, 0x7f})
				}
				write(t, path, data)
			}
		}, "data.verify=sizes"), diverged, []string{"epoch 1", "step 0", "NaN", "features"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.code == diverged { // the run has begun by then, and its log stays
				c.runDiverged(t)
				return
			}
			c.run(t)
		})
	}
}

// runDiverged is run for errors that occur only during training.
func (b badInput) runDiverged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := halognn(t).run(t, b.args(t, dir)...)
	for _, name := range []string{"summary.json", "model.safetensors"} {
		if found, err := filepath.Glob(filepath.Join(dir, "out", name)); err != nil ||
			len(found) > 0 {
			t.Errorf("a run that failed left %v (%v)", found, err)
		}
	}
	remove(t, filepath.Join(dir, "out"))
	b.check(t, dir, r)
}

func TestDivergence(t *testing.T) {
	for _, c := range []badInput{
		{"a learning rate far too high", func(t *testing.T, dir string) []string {
			return training(t, smallParts.dir(t), dir, "train.optimizer=sgd", "train.lr=1e30",
				"train.epochs=5")
		}, diverged, []string{"epoch", "step", "diverged", "train.lr"}},
		// Adam bounds the change of a step, so the loss becomes absurd but stays finite.
		{"a learning rate far too high for Adam", func(t *testing.T, dir string) []string {
			return training(t, smallParts.dir(t), dir, "train.lr=1e9")
		}, diverged, []string{"epoch 1: step 1", "more than 1e+06 times", "of the first step",
			"diverged", "there is no checkpoint", "train.lr"}},
		{"a learning rate far too high for Adam, at the last step",
			func(t *testing.T, dir string) []string {
				return training(t, smallParts.dir(t), dir, "train.lr=1e9", "train.epochs=1",
					"sample.batch=10000")
			}, diverged, []string{"evaluation after epoch 1", "mean loss of the predictions",
				"more than 1e+06 times", "diverged", "train.lr"}},
		{"a learning rate far too high for Adam, several labels",
			func(t *testing.T, dir string) []string {
				data := handmade{task: task.Multilabel}.write(t, filepath.Join(dir, "data"))
				return training(t, partitioned(t, data, 2, "random", "--allow-imbalance"), dir,
					"train.lr=1e9", "train.epochs=1", "sample.batch=10000")
			}, diverged, []string{"evaluation after epoch 1", "mean loss of the predictions",
				"diverged"}},
		{"checkpoints of weights that diverged", func(t *testing.T, dir string) []string {
			return training(t, smallParts.dir(t), dir, "train.optimizer=sgd", "train.lr=100",
				"checkpoint.every_steps=1")
		}, diverged, []string{"epoch 1: step 2", "more than 1e+06 times",
			"the last good checkpoint is ", "/checkpoints/step-00000001. "}},
		// Without validation and test vertices nothing is predicted with the weights of the last
		// step.
		{"at the last step, without vertices to validate or test",
			func(t *testing.T, dir string) []string {
				data := handmade{split: func(int) [3]bool {
					return [3]bool{true, false,
						false}
				}}.write(t, filepath.Join(dir, "data"))
				return training(t, partitioned(t, data, 2, "random", "--allow-imbalance"), dir,
					"train.optimizer=sgd", "train.lr=1e300", "train.epochs=1", "sample.batch=10000")
			}, diverged, []string{"epoch 1", "the weights are not finite", "diverged",
				"outgrew float32", "train.lr"}},
		// With one step, no later loss shows what the update did.
		{"at the last step", func(t *testing.T, dir string) []string {
			return training(t, smallParts.dir(t), dir, "train.optimizer=sgd", "train.lr=1e38",
				"train.epochs=1", "sample.batch=10000")
		}, diverged, []string{"epoch 1", "predictions", "diverged", "train.lr"}},
	} {
		t.Run(c.name, c.runDiverged)
	}
}

func TestBadRunDirs(t *testing.T) {
	done := trained(t, smallParts.dir(t), 2)
	// a job takes the lock in this copy for a moment
	held := copyOf(t, done.dir, t.TempDir(), "run")
	was := string(read(t, filepath.Join(held, "config.yaml")))
	inferring := func(t *testing.T, run, dir string, flags ...string) []string {
		return append([]string{"infer", "--run", run, "--out", filepath.Join(dir, "out.npy"),
			"--ranks-in-process", "2"}, flags...)
	}
	t.Run("group", func(t *testing.T) {
		for _, c := range []badInput{
			{"it holds a run", func(t *testing.T, dir string) []string {
				return training(t, smallParts.dir(t), dir, "run.dir="+held, "train.lr=0.5")
			}, usage, []string{held, "already holds a run", "choose another run.dir"}},
			{"it cannot be written", func(t *testing.T, dir string) []string {
				write(t, filepath.Join(dir, "file"), nil)
				return training(t, smallParts.dir(t), dir,
					"run.dir="+filepath.Join(dir, "file", "run"))
			}, usage, []string{"run directory", "file", "not a directory"}},
			{"infer: there is none",
				func(t *testing.T, dir string) []string {
					return inferring(t,
						filepath.Join(dir, "none"), dir)
				},
				badData, []string{"none holds no run", "no such file"}},
			{"infer: the run has not finished", func(t *testing.T, dir string) []string {
				run := copyOf(t, done.dir, dir, "run")
				remove(t, filepath.Join(run, "model.safetensors"))
				return inferring(t, run, dir)
			}, badData, []string{"model.safetensors", "no such file"}},
			{"infer: the model is truncated", func(t *testing.T, dir string) []string {
				run := copyOf(t, done.dir, dir, "run")
				truncate(t, filepath.Join(run, "model.safetensors"), 1000)
				return inferring(t, run, dir)
			}, badData, []string{"model.safetensors"}},
			{"infer: the model is of another width", func(t *testing.T, dir string) []string {
				return inferring(t, done.dir, dir, "--set", "model.hidden=8")
			}, badData, []string{"convs.", "16", "8"}},
			{"infer: the parts are of another graph", func(t *testing.T, dir string) []string {
				data := handmade{task: task.Multilabel, classes: 3}.write(t,
					filepath.Join(dir, "data"))
				return inferring(t, done.dir, dir, "--set",
					"data.parts="+partitioned(t, data, 2, "random", "--allow-imbalance"))
			}, badData, []string{"4 features", "was trained on 16"}},
			{"infer: more classes than were trained", func(t *testing.T, dir string) []string {
				data := handmade{classes: 15}.write(t, filepath.Join(dir, "data"))
				return inferring(t, done.dir, dir, "--parts",
					partitioned(t, data, 2, "random", "--allow-imbalance"))
			}, badData, []string{"15 classes", "was trained on 5", "without labels"}},
			{"infer: labels of another kind", func(t *testing.T, dir string) []string {
				data := handmade{classes: 15, task: task.Multilabel}.write(t,
					filepath.Join(dir, "data"))
				return inferring(t, done.dir, dir, "--parts",
					partitioned(t, data, 2, "random", "--allow-imbalance"))
			}, badData, []string{"the labels are multilabel", "without labels"}},
			{"infer: a list of vertices that is not there",
				func(t *testing.T, dir string) []string {
					return inferring(t, done.dir, dir, "--vertices", filepath.Join(dir, "none"))
				}, badData, []string{"--vertices", "no such file"}},
			{"infer: an empty list of vertices", func(t *testing.T, dir string) []string {
				write(t, filepath.Join(dir, "ids"), []byte("\n \n"))
				return inferring(t, done.dir, dir, "--vertices", filepath.Join(dir, "ids"))
			}, badData, []string{"--vertices", "no ids", "one id on each line"}},
			{"infer: a vertex that the graph has not", func(t *testing.T, dir string) []string {
				write(t, filepath.Join(dir, "ids"), []byte("1\n3000\n"))
				return inferring(t, done.dir, dir, "--vertices", filepath.Join(dir, "ids"))
			}, badData, []string{"--vertices", "3000", "0 to 2999"}},
			{"infer: a vertex by another name", func(t *testing.T, dir string) []string {
				write(t, filepath.Join(dir, "ids"), []byte("alice\n"))
				return inferring(t, done.dir, dir, "--vertices", filepath.Join(dir, "ids"))
			}, badData, []string{"--vertices", "alice", "0 to 2999"}},
			{"infer: a vertex twice", func(t *testing.T, dir string) []string {
				write(t, filepath.Join(dir, "ids"), []byte("1\n2\n1\n"))
				return inferring(t, done.dir, dir, "--vertices", filepath.Join(dir, "ids"))
			}, badData, []string{"--vertices", "given twice", "1 and 3"}},
			{"infer: vertices in a square", func(t *testing.T, dir string) []string {
				save(t, filepath.Join(dir, "ids.npy"), make([]int64, 4), 2, 2)
				return inferring(t, done.dir, dir, "--vertices", filepath.Join(dir, "ids.npy"))
			}, badData, []string{"--vertices", "ids.npy", "list of ids"}},
			{"infer: nothing to write", func(t *testing.T, dir string) []string {
				return []string{"infer", "--run", done.dir}
			}, usage, []string{"--out is missing", "--embeddings"}},
			{"infer: one file for two things", func(t *testing.T, dir string) []string {
				return inferring(t, done.dir, dir, "--embeddings", filepath.Join(dir, "out.npy"))
			}, usage, []string{"--out and --embeddings", "two files"}},
			{"infer: hidden rows as a table", func(t *testing.T, dir string) []string {
				return inferring(t, done.dir, dir, "--embeddings", filepath.Join(dir, "out.csv"))
			}, usage, []string{"out.csv", "NumPy only"}},
			{"infer: logits and probabilities", func(t *testing.T, dir string) []string {
				return inferring(t, done.dir, dir, "--logits", "--probabilities")
			}, usage, []string{"exclude each other"}},
			{"infer: probabilities of nothing", func(t *testing.T, dir string) []string {
				return []string{"infer", "--run", done.dir, "--embeddings",
					filepath.Join(dir, "out.npy"), "--probabilities"}
			}, usage, []string{"--probabilities", "--out"}},
			{"infer: hidden rows in no directory", func(t *testing.T, dir string) []string {
				write(t, filepath.Join(dir, "file"), nil)
				return inferring(t, done.dir, dir, "--embeddings", filepath.Join(dir, "file",
					"e.npy"))
			}, badData, []string{"embeddings", "file: not a directory"}},
			{"infer: hidden rows of one layer", func(t *testing.T, dir string) []string {
				run := trained(t, smallParts.dir(t), 2, "model.layers=1", "sample.fanouts=5")
				return inferring(t, run.dir, dir, "--embeddings", filepath.Join(dir, "out-e.npy"))
			}, badData, []string{"--embeddings", "one layer"}},
			{"infer: metadata of no model", func(t *testing.T, dir string) []string {
				run := copyOf(t, done.dir, dir, "run")
				replace(t, filepath.Join(run, "model.safetensors"), `"out":"5"`, `"out":"x"`)
				return inferring(t, run, dir)
			}, badData, []string{"model.safetensors", "metadata", "train again"}},
			{"infer: an unknown mode",
				func(t *testing.T, dir string) []string {
					return inferring(t, done.dir, dir,
						"--mode", "half")
				},
				usage, []string{"half", "sampled"}},
			{"infer: predictions cannot be written", func(t *testing.T, dir string) []string {
				write(t, filepath.Join(dir, "file"), nil)
				return inferring(t, done.dir, dir, "--out", filepath.Join(dir, "file", "out.npy"))
			}, badData, []string{"predictions", "file: not a directory"}},
			{"infer: predictions in the stead of a directory",
				func(t *testing.T, dir string) []string {
					return inferring(t, done.dir, dir, "--out", t.TempDir())
				}, badData, []string{"predictions", "no regular file"}},
			{"check: the run has not finished", func(t *testing.T, dir string) []string {
				run := copyOf(t, done.dir, dir, "run")
				remove(t, filepath.Join(run, "summary.json"))
				return []string{"check", run}
			}, badData, []string{"summary.json", "not finished"}},
		} {
			t.Run(c.name, c.run)
		}
	})
	if now := string(read(t, filepath.Join(held, "config.yaml"))); now != was {
		t.Errorf("a refused run changed the config of the run before:\n%s", now)
	}
}
