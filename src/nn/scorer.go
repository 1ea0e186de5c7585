package nn

import "halognn/src/task"

// scorerParams declares those of a score of links with embeddings of width d: see task.Scorer.
// DistMult starts as the inner product.
func scorerParams(score string, d int) []Param {
	switch score {
	case task.DistMult:
		return []Param{constant("scorer.weight", d, 1)}
	case task.MLP:
		return []Param{weight("scorer.lins.0.weight", d, d), bias("scorer.lins.0.bias", d, d),
			weight("scorer.lins.1.weight", 1, d), bias("scorer.lins.1.bias", 1, d)}
	}
	return nil
}

// Rater returns what rates links with the model's parameters. Waits for the device.
func (m *Model) Rater(p task.Pairs) *task.Rater {
	r := &task.Rater{Pairs: p}
	for _, values := range m.scorer.Values {
		host := make([]float32, len(values))
		m.dev.Download(host, values)
		r.Values = append(r.Values, host)
	}
	return r
}
