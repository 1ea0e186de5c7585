package blocks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute/ref"
	"halognn/src/runs/session/sessiontest"
)

// Minibatches of links have pairs and no label of each seed: they are refused before a file is
// made.
func TestLinksAreRefused(t *testing.T) {
	s := shardtest.Open(t, dataset.GenerateOptions{Vertices: 40, Degree: 6, Features: 4, Classes: 2,
		SplitLinks: "70/10/20", Seed: 2}, shardtest.Options{Parts: 2})
	dir := filepath.Join(t.TempDir(), "blocks")
	_, err := Write(Export{Shards: s, Device: ref.New(), Ranks: 1, Dir: dir}, sessiontest.Spec())
	if err == nil || !strings.Contains(err.Error(), "the task is links") {
		t.Errorf("blocks of links: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a directory was made")
	}
}
