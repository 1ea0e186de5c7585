package config

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"halognn/src/base/mem/memtest"
)

// Any config is either rejected, or its resolved form loads to the same config.
func FuzzConfig(f *testing.F) {
	for _, name := range []string{"demo", "products", "reference", "slow-network"} {
		text, err := os.ReadFile(filepath.Join("../../../inputs", name+".yaml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(minimal + "sample: {fanouts: [5, -1, 2]}\ncache: {policy: vip}\n"))
	dir := f.TempDir()
	load := func(t *testing.T, text []byte) (*Config, error) {
		path := filepath.Join(dir, "run.yaml")
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
		return Load(path, nil)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		memtest.Bounded(t, 256<<20, func() {
			c, err := load(t, text)
			if err != nil {
				return
			}
			for _, resolved := range []string{c.YAML(), c.CommentedYAML()} {
				again, err := load(t, []byte(resolved))
				if err != nil {
					t.Fatalf("the resolved config is refused: %v\n%s", err, resolved)
				}
				if !maps.Equal(c.Flat(), again.Flat()) {
					t.Errorf("the resolved config comes to something else:\n%s", resolved)
				}
			}
		})
	})
}
