package nn

import (
	"errors"
	"fmt"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

// normEps is added to the variance in LayerNorm and BatchNorm. It is PyTorch's default.
const normEps = 1e-5

// Model is a stack of layers with their parameters, and memory for the activations of one
// minibatch. Make it with NewModel.
type Model struct {
	Config Config
	Params *Params

	dev    compute.Device
	store  store
	stages []stage
	inputs []Input // input of each layer's last forward pass

	project *projection // nil if the graph has no vertex types
	sparse  *sparseMap  // nil if the input layer reads no sparse rows
	jump    *jumping    // jumping knowledge; nil if the model has none
	scorer  task.Scorer
	task    *task.Task
	loss    task.LossFunc // loss of training
	// A loss of training that the device computes without the host. It is nil if the host must take
	// part, and so must wait for the device.
	queues task.QueuedLossFunc
	queued queuedLoss // result of the function `queues` for the last minibatch

	scale task.Scale // scale by which outputs of regression become targets

	// grad holds gradients with respect to layer outputs. The gradient of layer l's output is in
	// grad[l%2]. Backward of layer l writes the gradient of layer l-1's output into the other
	// buffer.
	grad     [2]*buffer
	dx       Gradient          // gradient that BackwardLayer computes
	own      *buffer           // memory of dx.own
	mapped   [2]*buffer        // rows that MapFirst makes
	joinings []compute.Joining // the joined matrices of weights that joinWeights makes
	rounds   bool              // gradients of hidden rows are rounded
	fuses    bool              // the device takes gradients back in the pass that makes them
	stores   compute.Elements  // the type in which the device stores rows
}

// stage is a layer with the normalisation, activation and dropout that follow it.
type stage struct {
	Layer
	in, out int
	y       *buffer // [D,out] output, after normalisation, activation and dropout
	norm    *norm   // nil if the layer has no LayerNorm
	batch   *batchNorm
	// Whether the output is hidden rows and not logits. Hidden rows are normalised, activated and
	// dropped out.
	hidden bool

	residual bool // whether the destinations' own rows are added before the activation
	// [D,out] gradient with respect to the input of the norm. It is used if this gradient must not
	// overwrite the gradient of the norm's output.
	dsum *buffer
}

// norm is a LayerNorm, with what its backward pass reads.
type norm struct {
	gamma, beta, dgamma, dbeta []float32 // [out]
	x                          *buffer   // [D,out] output of the convolution
	mean, rstd                 *buffer   // [D]
}

// NewModel allocates a model of architecture c on dev and draws its parameters from seed. They are
// uniform in +-1/sqrt(fan in), as in PyTorch, except that LayerNorm begins with weights 1 and
// biases 0. So with equal c and seed, all ranks get equal parameters. Memory for activations is
// allocated by the first forward pass or by Reserve. Close frees everything.
func NewModel(dev compute.Device, c Config, seed uint64) (*Model, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	m := &Model{Config: c, dev: dev, store: store{dev: dev}, inputs: make([]Input, c.Layers),
		task: task.Find(c.Task)}
	m.loss, m.queues = m.task.Minibatch, m.task.Queued
	m.grad, m.own = [2]*buffer{m.store.buffer(), m.store.buffer()}, m.store.buffer()
	m.mapped = [2]*buffer{m.store.buffer(), m.store.buffer()}
	device := compute.CapabilitiesOf(dev)
	m.fuses, m.stores = device.GoesBack, device.Stores
	m.rounds = device.Precision.Stored() == compute.BF16s
	declared := make([][]Param, c.Layers)
	var statistics []Param
	for l := range c.Layers {
		s := stage{Layer: c.newLayer(&m.store, l), hidden: c.hidden(l)}
		s.in, s.out = c.Widths(l)
		if s.y = m.store.buffer(); c.isStored(l) {
			s.y = m.store.hidden(s.out)
		}
		s.residual, s.dsum = c.Residual && s.hidden && l > 0, m.store.buffer()
		if s.hidden && c.Norm == NormLayer {
			s.norm = &norm{x: m.store.buffer(), mean: m.store.buffer(), rstd: m.store.buffer()}
			declared[l] = append(declared[l],
				constant(fmt.Sprintf("norms.%d.weight", l), s.out, 1),
				constant(fmt.Sprintf("norms.%d.bias", l), s.out, 0))
		}
		if s.hidden && c.Norm == NormBatch {
			s.batch = &batchNorm{x: m.store.buffer(), mean: m.store.buffer(),
				variance: m.store.buffer(), shift: m.store.buffer()}
			declared[l] = append(declared[l], constant(fmt.Sprintf("norms.%d.module.weight", l),
				s.out, 1), constant(fmt.Sprintf("norms.%d.module.bias", l), s.out, 0))
			statistics = append(statistics, batchNormStatistics(l, s.out)...)
		}
		declared[l] = append(declared[l], s.Params()...)
		m.stages = append(m.stages, s)
	}
	if m.project = newProjection(&m.store, c); m.project != nil {
		declared[0] = append(declared[0], m.project.params()...)
		if r, is := m.stages[0].Layer.(*relational); is {
			r.folds = newFolded(&m.store, c, m.project, r.weights.own())
		}
	}
	m.sparse = newSparseMap(&m.store, c, m.stages[0].Layer)
	if c.Jumps() {
		m.jump = newJumping(&m.store, c)
		declared[c.Layers-1] = append(m.jump.params(), declared[c.Layers-1]...)
	}
	declared[c.Layers-1] = append(scorerParams(c), declared[c.Layers-1]...)
	var err error
	if m.Params, err = newParams(dev, statistics, declared, seed); err != nil {
		return nil, err
	}
	m.bind()
	return m, nil
}

// SetObjective sets how the training loss is computed. It does not affect validation and inference,
// because these compute no loss.
func (m *Model) SetObjective(o task.Objective) error {
	scratch := m.store.buffer()
	if err := scratch.reserve(task.ScorerScratch(m.Config.Scorer, m.Config.Out,
		m.Config.Rated)); err != nil {
		return fmt.Errorf("scores of links: %w", err)
	}
	o.Scorer = m.scorer
	o.Scratch = scratch.data
	loss, err := m.task.LossWith(o, m.Config.Outputs())
	if err == nil {
		m.loss, m.queues = loss, m.task.QueuedLossWith(o)
		m.SetScale(o.Scale)
	}
	return err
}

// SetScale sets how outputs of regression are scaled to the unit of the targets.
func (m *Model) SetScale(s task.Scale) { m.scale = s }

// Scale returns what SetScale or SetObjective set.
func (m *Model) Scale() task.Scale { return m.scale }

// Undo turns rows of outputs on the host into what the model predicts, in place. Numbers are scaled
// to the unit of the targets. Scores of classes, and embeddings in tasks of links, do not change.
func (m *Model) Undo(z []float32) {
	if !m.task.Embeds {
		m.scale.Undo(z)
	}
}

// bind gives every layer its slices of the flat arrays, in which the last layer comes first.
func (m *Model) bind() {
	next := 0
	take := func(n int) (values, grads [][]float32) {
		for _, q := range m.Params.List[next : next+n] {
			values, grads = append(values, q.part(m.Params.Values)),
				append(grads, q.part(m.Params.Grads))
		}
		next += n
		return values, grads
	}
	m.scorer.Values, m.scorer.Grads = take(len(scorerParams(m.Config)))
	if m.jump != nil {
		m.jump.bind(take(len(m.jump.params())))
	}
	for l := len(m.stages) - 1; l >= 0; l-- {
		s := m.stages[l]
		if s.norm != nil {
			values, grads := take(2)
			s.norm.gamma, s.norm.beta = values[0], values[1]
			s.norm.dgamma, s.norm.dbeta = grads[0], grads[1]
		}
		if n := s.batch; n != nil {
			values, grads := take(2)
			n.gamma, n.beta, n.dgamma, n.dbeta = values[0], values[1], grads[0], grads[1]
		}
		s.Bind(take(len(s.Params())))
	}
	if m.project != nil {
		m.project.bind(take(len(m.project.params())))
	}
	next = 0
	for l := range m.stages {
		if n := m.stages[l].batch; n != nil {
			n.running = m.Params.Statistics[next : next+3]
			n.values = [2][]float32{n.running[0].part(m.Params.Values),
				n.running[1].part(m.Params.Values)}
			next += 3
		}
	}
}

// ActivationBytes returns the bytes allocated for activations so far.
func (m *Model) ActivationBytes() int64 { return m.store.bytes() }

// Close frees all device memory.
func (m *Model) Close() {
	m.store.free()
	m.Params.free()
}

// Needs says which rows the input layer reads, so that preparing a minibatch makes only these.
func (m *Model) Needs() Needs { return m.Config.Needs() }

// Reserve makes room for layer l to run on the argument in. It reads only the counts and flags of
// this input, and whether Aggregate is given. ForwardLayer calls Reserve. If the caller knows the
// largest sizes and calls Reserve with them before the first pass, no memory has to be allocated
// later. It fails only if device memory runs out.
func (m *Model) Reserve(l int, in *Input) error {
	s, rows := &m.stages[l], in.Destinations
	err := errors.Join(s.y.reserve((rows+in.Others)*s.out), s.Layer.Reserve(in))
	if l == 0 && m.project != nil && !in.Folded {
		err = errors.Join(err, m.project.x.reserve(in.Sources*m.project.width))
	}
	if s.norm != nil {
		err = errors.Join(err, s.norm.x.reserve(rows*s.out), s.norm.mean.reserve(rows),
			s.norm.rstd.reserve(rows))
	}
	if s.batch != nil {
		err = errors.Join(err, s.batch.reserve(rows, s.out))
	}
	if s.residual && (s.norm != nil || s.batch != nil) && in.Train && !m.completes(l, in) {
		err = errors.Join(err, s.dsum.reserve(rows*s.out))
	}
	last := l == len(m.stages)-1
	if last && m.jump != nil {
		err = errors.Join(err, m.jump.reserve(rows, in.Others, in.Train))
	}
	if last && in.Train {
		err = errors.Join(err, m.grad[l%2].reserve((rows+in.Others)*s.out))
	}
	if last && in.Train && m.jump != nil && m.lastGradient(in) == compute.BF16s {
		err = errors.Join(err, m.own.reserve(rows*s.out))
	}
	if in.Gradient {
		n, width := in.gradient(s.in)
		err = errors.Join(err, m.grad[(l+1)%2].reserve(m.gradientIn(l, in).Floats(n*width)),
			m.own.reserve(m.ownRows(l, in)))
	}
	if err != nil {
		return fmt.Errorf("layer %d, %d sources, %d destinations: %w", l, in.Sources, rows, err)
	}
	return nil
}

// ForwardLayer runs layer l and returns its output [Destinations, out], which stays valid until the
// layer runs again. Its Data has capacity for in.Others further rows, which the caller may use.
// There is dropout only if in.Train is set. It fails if device memory runs out or in.Gather fails.
func (m *Model) ForwardLayer(l int, in *Input) (compute.Matrix, error) {
	if l == 0 && in.Sparse.given() {
		if err := m.ReserveSparse(in); err != nil {
			return compute.Matrix{}, err
		}
		m.sparse.forward(in)
	}
	if err := m.Reserve(l, in); err != nil {
		return compute.Matrix{}, err
	}
	if l == 0 && in.Train {
		if err := m.joinWeights(in); err != nil {
			return compute.Matrix{}, err
		}
	}
	if l == 0 && len(in.Types) > 0 && !in.Folded {
		in.X = m.project.forward(in)
	}
	m.inputs[l] = *in // for FirstFault
	s := &m.stages[l]
	y, epilogue := s.y.matrix(in.Destinations, s.out), m.epilogue(s, in)
	if n := s.batch; n != nil {
		x := n.x.matrix(in.Destinations, s.out)
		s.Layer.Forward(x, in, compute.Epilogue{})
		if err := n.forward(m.dev, y, x, in, epilogue); err != nil {
			return y, fmt.Errorf("batch norm of layer %d: %w", l, err)
		}
	} else if n := s.norm; n != nil {
		x := n.x.matrix(in.Destinations, s.out)
		s.Layer.Forward(x, in, compute.Epilogue{})
		m.dev.LayerNorm(y, x, n.gamma, n.beta, n.mean.data[:y.Rows], n.rstd.data[:y.Rows], normEps,
			epilogue)
	} else {
		s.Layer.Forward(y, in, epilogue)
	}
	return y, nil
}

// LastHidden returns the hidden rows of the seeds: [Destinations, in], the destinations' rows that
// the last layer read in its last forward pass. They are valid until the second-last layer runs
// again.
func (m *Model) LastHidden() compute.Matrix { return m.inputs[len(m.inputs)-1].ownRows() }

// epilogue returns the operations on a layer's result that come after the norm, if it has one. With
// a residual connection the destinations' own rows are added. Hidden rows are then activated and
// dropped out.
func (m *Model) epilogue(s *stage, in *Input) (e compute.Epilogue) {
	if s.residual {
		e.Add = in.ownRows()
	}
	if s.hidden {
		e.Rounded = true
		e.Activation, e.P, e.Key, e.Vertices = compute.ActivateReLU, m.dropped(in), in.Dropout,
			in.Vertices
		if m.Config.Activation == ELU {
			e.Activation = compute.ActivateELU
		}
	}
	return e
}

// normBuffer returns the buffer of the norm's input and, later, of the input's gradient.
func (s *stage) normBuffer() *buffer {
	if s.batch != nil {
		return s.batch.x
	}
	return s.norm.x
}

// dropped returns the probability that an activation is dropped, which is 0 except in training.
func (m *Model) dropped(in *Input) float32 {
	if in.Train {
		return m.Config.Dropout
	}
	return 0
}

// BackwardLayer runs the backward pass of layer l. The argument dy [Destinations, out] is the
// gradient with respect to the layer's output or, if goesBack(l+1), to the input of the activation
// that the output has passed; it is overwritten. When the device has finished its queued work, the
// layer's bucket of Params.Grads is complete, except for gradients that Columns.Backward sets.
// BackwardLayer returns the gradient with respect to in.X, [Sources, in], or, if goesBack(l), to
// the input of the activation before it. If in.Shares is given, it returns the gradient of the sum
// of the shares instead. For a folded minibatch it returns the gradient of the products of folded
// rows (see RowGradient). The result is valid until layer l-1 has run backward. If in.Gradient is
// not set, the result is an empty matrix: features that are not trained need no gradient, and it
// would be the largest of all. ForwardLayer must have run on the same input with in.Train. It fails
// only if in.Gather fails.
func (m *Model) BackwardLayer(l int, in *Input, dy compute.Matrix) (dx compute.Matrix, err error) {
	s := &m.stages[l]
	if l < len(m.stages)-1 && !m.completes(l+1, &m.inputs[l+1]) {
		if m.jump != nil {
			m.jump.take(dy, l, true)
		}
		if m.rounds {
			m.dev.Round(dy, dy)
		}
	}
	y, epilogue := s.y.matrix(dy.Rows, s.out), m.epilogue(s, in)
	if m.goesBack(l + 1) { // and so has dy
		epilogue = compute.Epilogue{Rounded: epilogue.Rounded}
	}
	grad := &m.dx
	*grad = m.gradient(l, in, dy, y, epilogue)
	sum, later := dy, s.residual && in.Gradient && !grad.rounded
	if later && sum.BF16 != nil {
		panic("nn: a residual's gradient of bfloat16 cannot go back through the activation in " +
			"place")
	}
	// the variable sum becomes the gradient with respect to the input of the activation
	switch normed := s.norm != nil || s.batch != nil; {
	case later && normed:
		dy = s.dsum.matrix(dy.Rows, s.out)
	// dy cannot be overwritten here, because the gradient below a norm is float32
	case normed && dy.BF16 != nil:
		dy = s.normBuffer().matrix(dy.Rows, s.out)
	}
	if n := s.norm; n != nil {
		x := n.x.matrix(dy.Rows, s.out)
		m.dev.LayerNormBackward(dy, n.dgamma, n.dbeta, sum, x, n.gamma, n.mean.data[:dy.Rows],
			n.rstd.data[:dy.Rows], y, epilogue)
		epilogue = compute.Epilogue{}
	}
	if n := s.batch; n != nil {
		dy, err = n.backward(m.dev, dy, sum, n.x.matrix(dy.Rows, s.out), y, in, epilogue)
		if err != nil {
			return dx, fmt.Errorf("batch norm of layer %d: %w", l, err)
		}
		epilogue = compute.Epilogue{}
	}
	s.Layer.Backward(grad, dy, y, in, epilogue)
	dx = grad.Matrix
	if later {
		m.dev.CopyColumns(dx.RowsAt(0, in.Destinations), 0, sum, 0, s.out, true)
	}
	if l == 0 && len(in.Types) > 0 && !in.Folded {
		m.project.backward(dx, in)
	}
	if l == 0 && in.Sparse.given() {
		m.sparse.backward(in, dx)
	}
	m.dev.Settle()
	return dx, nil
}
