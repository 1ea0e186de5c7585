package shard

import "halognn/src/data/dataset"

// Team is the group of processes that write parts together. Each process calls Write with the same
// layout and its own open dataset. The methods wait for all processes.
type Team interface {
	Rank() int
	Size() int
	// Gather returns the bytes that each process passed as mine, by rank.
	Gather(mine []byte) ([][]byte, error)
	// Agree returns an error to all processes if any process passed one as mine.
	Agree(mine error) error
}

// Alone is the team of one process.
type Alone struct{}

func (Alone) Rank() int                            { return 0 }
func (Alone) Size() int                            { return 1 }
func (Alone) Gather(mine []byte) ([][]byte, error) { return [][]byte{mine}, nil }
func (Alone) Agree(mine error) error               { return mine }

// begin makes the temporary directory of the team. The caller must call the function `end`.
func begin(team Team, dir string) (tmp string, end func(), err error) {
	end = func() {}
	if team.Rank() == 0 {
		tmp, err = dataset.Begin(dir)
	}
	if err = team.Agree(err); err != nil {
		return "", end, err
	}
	names, err := team.Gather([]byte(tmp))
	if err != nil {
		return "", end, err
	}
	if tmp = string(names[0]); team.Rank() > 0 {
		end, err = dataset.Join(tmp)
	}
	return tmp, end, team.Agree(err)
}
