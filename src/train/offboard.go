package train

// GPURows is how many feature rows of the own parts, from the hottest on, lie in the memory of a device that has its own. The zero value is
// what fits into half of what the model leaves; the other half is for activations and minibatches.
type GPURows struct {
	Set      bool
	Fraction float64 // of the rows, or
	Bytes    int     // if Fraction is 0
}

// Of returns how many bytes of total stay on a device of which the model leaves room.
func (g GPURows) Of(total, room int) int {
	switch {
	case g.Set && g.Fraction > 0:
		return int(g.Fraction * float64(total))
	case g.Set:
		return g.Bytes
	}
	return room / 2
}

// openOffboard prepares what a device with memory of its own needs besides: resident rows.
func (s *session) openOffboard() error {
	device := s.Device.Capabilities().Accelerator
	if device == nil {
		return nil
	}
	var err error
	s.ownRows, err = s.openDeviceRows(device)
	return err
}

// residentRows returns, for every table, how many of its rows lie on the device: of the own parts the same share of each.
func (s *session) residentRows(room int) []int {
	total := 0
	for p := s.first; p < s.last; p++ {
		total += len(s.tables[p])
	}
	share := min(1, float64(s.GPURows.Of(total, room))/float64(max(1, total)))
	rows := make([]int, len(s.tables))
	for p := s.first; p < s.last; p++ {
		rows[p] = int(share * float64(len(s.tables[p])/s.Shards.RowBytes()))
	}
	return rows
}
