package checkpoint

import (
	"encoding/json"
	"testing"

	"github.com/cespare/xxhash/v2"

	"halognn/src/base/mem/memtest"
	"halognn/src/data/rundir"
)

// Any state under a valid seal is either rejected, or is one from which a run can go on.
func FuzzCheckpointState(f *testing.F) {
	for _, s := range []*State{
		{
			Format: rundir.CheckpointFormat,
			Place:  Place{Epoch: 1, Step: 1, StepsPerEpoch: 9, OptimizerSteps: 1},
		},
		{
			Format: rundir.CheckpointFormat,
			Place:  Place{Epoch: 3, Step: 2, StepsPerEpoch: 5, OptimizerSteps: 12},
			Origin: Origin{
				Ranks: 2, Streams: 4, Config: map[string]string{"train.lr": "0.1"},
			},
			EpochSeconds: []float64{1, 2},
			UnderWay: UnderWay{
				Each:   []Share{{Remote: 3, Waiting: 0.5}, {Remote: 4}},
				Phases: map[string]float64{"sample": 1},
			},
			Files: rundir.FileSums{rundir.ModelFile: {Bytes: 10, XXH64: "00"}},
		},
	} {
		digest, err := xxhash.New().MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		s.LossDigest = digest
		text, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		memtest.Bounded(t, 64<<20, func() {
			if Sound(text) != nil {
				return
			}
			s := new(State)
			if err := json.Unmarshal(text, s); err != nil {
				t.Fatalf("it is said to be sound: %v", err)
			}
			for ranks := 1; ranks <= 4; ranks++ {
				for r := range ranks {
					s.Earlier(r, ranks)
				}
			}
			s.over(10, 3)
			digest := xxhash.New()
			if digest.UnmarshalBinary(s.LossDigest) == nil {
				_, _ = digest.Write(make([]byte, 100))
				digest.Sum64()
			}
			if _, err := json.Marshal(s); err != nil {
				t.Errorf("it cannot be written again: %v", err)
			}
		})
	})
}
