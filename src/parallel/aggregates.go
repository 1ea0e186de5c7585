package parallel

import "halognn/src/compute"

// aggregates is data parallelism that ends with what the first layer would aggregate.
type aggregates struct{ *dataParallel }

// NewAggregates makes a strategy whose Forward returns what the layers of the model aggregate of
// their neighbours' rows, [len(m.Scored), o.Cols]: a sum, mean or maximum, column by column, so the
// rows may be some columns of a layer's. It does not train. Collective.
func NewAggregates(o Options) (Strategy, error) {
	needs := o.Model.Needs()
	needs.Own = false
	d, err := makeData(o, needs, 0, 1)
	if err != nil {
		return nil, err
	}
	return aggregates{d}, nil
}

// Forward implements Strategy.
func (a aggregates) Forward(m *Minibatch) (compute.Matrix, error) {
	err := a.staging.receive(m)
	return m.Batch.Aggregate, err
}
