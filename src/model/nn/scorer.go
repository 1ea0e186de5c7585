package nn

import "halognn/src/model/task"

// scorerParams declares the parameters of a score of links (see task.Scorer). With one output, the
// initial weights of DistMult make it the inner product. With several outputs they are random.
func scorerParams(c Config) []Param {
	d, outputs := c.Out, max(1, c.Rated)
	switch {
	case c.Scorer == task.DistMult && c.Rated > 0:
		return []Param{weight("scorer.weight", outputs, d)}
	case c.Scorer == task.DistMult:
		return []Param{constant("scorer.weight", d, 1)}
	case c.Scorer == task.MLP:
		return []Param{weight("scorer.lins.0.weight", d, d), bias("scorer.lins.0.bias", d, d),
			weight("scorer.lins.1.weight", outputs, d), bias("scorer.lins.1.bias", outputs, d)}
	}
	return nil
}

// Rater returns a task.Rater that rates links with the model's parameters. Waits for the device.
func (m *Model) Rater(p task.Pairs) *task.Rater {
	r := &task.Rater{Pairs: p, Scale: m.scale}
	for _, values := range m.scorer.Values {
		host := make([]float32, len(values))
		m.dev.Download(host, values)
		r.Values = append(r.Values, host)
	}
	return r
}
