package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The permitted globals, under their names in library versions of the last fifteen years.
const (
	globalCSR         global = "csr_matrix"
	globalReconstruct global = "_reconstruct"
	globalNDArray     global = "ndarray"
	globalDType       global = "dtype"
	globalDefaultDict global = "defaultdict"
	globalList        global = "list"
)

var knownGlobals = map[string]global{
	"scipy.sparse.csr.csr_matrix":         globalCSR,
	"scipy.sparse._csr.csr_matrix":        globalCSR,
	"numpy.core.multiarray._reconstruct":  globalReconstruct,
	"numpy._core.multiarray._reconstruct": globalReconstruct,
	"numpy.ndarray":                       globalNDArray,
	"numpy.dtype":                         globalDType,
	"collections.defaultdict":             globalDefaultDict,
	"__builtin__.list":                    globalList,
}

type (
	dtype struct {
		code string // "i4", "f8", ...
		big  bool
	}
	array struct {
		shape []int
		typ   dtype
		data  []byte // row-major
	}
	sparse struct{ state *dict }
)

// construct implements REDUCE and NEWOBJ: it makes an empty object of one of the known classes.
func construct(op byte, callee, args any) any {
	name, ok := callee.(global)
	t, isTuple := args.(tuple)
	if !ok || !isTuple {
		fail("calls %s with %s", kind(callee), kind(args))
	}
	switch {
	case op == opNewObj && name == globalCSR && len(t) == 0:
		return &sparse{}
	case op == opReduce && name == globalReconstruct && len(t) == 3 && t[0] == any(globalNDArray):
		return &array{}
	case op == opReduce && name == globalDType && len(t) == 3:
		code, ok := t[0].([]byte)
		if !ok || itemSize(string(code)) == 0 {
			fail("an array of dtype %q; want numbers of 1, 2, 4 or 8 bytes", code)
		}
		return &dtype{code: string(code)}
	case op == opReduce && name == globalDefaultDict && len(t) == 1 && t[0] == any(globalList):
		return &dict{}
	}
	fail("calls %s in a way no Planetoid file does", name)
	return nil
}

// build implements BUILD: it fills an object with its state.
func build(object, state any) {
	switch o := object.(type) {
	case *dtype:
		s, ok := state.(tuple)
		order, isBytes := at(s, 1).([]byte)
		if !ok || !isBytes || len(order) != 1 {
			fail("a dtype without its byte order")
		}
		o.big = order[0] == '>'
	case *array:
		s, ok := state.(tuple)
		if !ok || len(s) != 5 {
			fail(
				"an ndarray with a state of another form than (version, shape, dtype, order, data)")
		}
		o.setState(s)
	case *sparse:
		d, ok := state.(*dict)
		if !ok {
			fail("a csr_matrix whose state is %s, want a dict", kind(state))
		}
		o.state = d
	default:
		fail("sets the state of %s", kind(object))
	}
}

func at(t tuple, i int) any {
	if i >= len(t) {
		return nil
	}
	return t[i]
}

func (a *array) setState(s tuple) {
	shape, ok := s[1].(tuple)
	typ, isType := s[2].(*dtype)
	fortran, isBool := s[3].(bool)
	data, isBytes := s[4].([]byte)
	if !ok || !isType || !isBool || !isBytes || len(shape) > 2 {
		fail("an ndarray with a state of another form than (version, shape, dtype, order, data)")
	}
	dims := make([]int, len(shape))
	items := int64(len(data) / itemSize(typ.code))
	want := int64(1)
	for i, d := range shape {
		n, ok := d.(int64)
		// A dimension larger than the data is rejected before the product could overflow.
		if !ok || n < 0 || n > max(items, 1<<16) {
			fail("an ndarray with an impossible dimension of %d", n)
		}
		dims[i], want = int(n), want*n
	}
	if want != items || len(data)%itemSize(typ.code) != 0 {
		fail("an ndarray of shape %v with %d bytes of %s", dims, len(data), typ.code)
	}
	if fortran && len(dims) == 2 && dims[0] > 1 && dims[1] > 1 {
		fail("an ndarray in Fortran order; want C order")
	}
	a.shape, a.typ, a.data = dims, *typ, data
}

// itemSize returns the bytes of one number of a dtype, 0 for a dtype that is not read.
func itemSize(code string) int {
	switch code {
	case "b1", "i1", "u1":
		return 1
	case "i2", "u2":
		return 2
	case "i4", "u4", "f4":
		return 4
	case "i8", "u8", "f8":
		return 8
	}
	return 0
}

// bits returns item i as its raw bits.
func (a *array) bits(i int) uint64 {
	n := itemSize(a.typ.code)
	b := a.data[i*n : i*n+n]
	var order binary.ByteOrder = binary.LittleEndian
	if a.typ.big {
		order = binary.BigEndian
	}
	switch n {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(order.Uint16(b))
	case 4:
		return uint64(order.Uint32(b))
	}
	return order.Uint64(b)
}

func (a *array) len() int {
	if a.typ.code == "" { // never built
		return 0
	}
	return len(a.data) / itemSize(a.typ.code)
}

func (a *array) ints() ([]int64, error) {
	if a.len() > 0 && a.typ.code[0] == 'f' {
		return nil, fmt.Errorf("holds %s, want integers", a.typ.code)
	}
	out := make([]int64, a.len())
	for i := range out {
		x := int64(a.bits(i))
		if a.typ.code[0] == 'i' { // sign-extend
			unused := 64 - 8*itemSize(a.typ.code)
			x = x << unused >> unused
		}
		out[i] = x
	}
	return out, nil
}

func (a *array) floats() ([]float64, error) {
	out := make([]float64, a.len())
	switch a.typ.code {
	case "f4":
		for i := range out {
			out[i] = float64(math.Float32frombits(uint32(a.bits(i))))
		}
	case "f8":
		for i := range out {
			out[i] = math.Float64frombits(a.bits(i))
		}
	default:
		ints, err := a.ints()
		if err != nil {
			return nil, err
		}
		for i, x := range ints {
			out[i] = float64(x)
		}
	}
	return out, nil
}

func (s *sparse) field(name string) any {
	if s.state == nil { // never built
		return nil
	}
	for i, k := range s.state.keys {
		if b, ok := k.([]byte); ok && string(b) == name {
			return s.state.values[i]
		}
	}
	return nil
}

// csr checks the parts of a pickled matrix and converts them.
func (s *sparse) csr() (*CSR, error) {
	shape, _ := s.field("_shape").(tuple)
	rows, isRows := at(shape, 0).(int64)
	cols, isCols := at(shape, 1).(int64)
	if len(shape) != 2 || !isRows || !isCols || rows < 0 || cols < 0 || rows > math.MaxInt32 ||
		cols > math.MaxInt32 {
		return nil, fmt.Errorf("csr_matrix without a usable shape")
	}
	parts := map[string]*array{}
	for _, name := range []string{"indptr", "indices", "data"} {
		a, ok := s.field(name).(*array)
		if !ok || len(a.shape) != 1 {
			return nil, fmt.Errorf("csr_matrix without a one-dimensional array %q", name)
		}
		parts[name] = a
	}
	m := &CSR{Rows: int(rows), Cols: int(cols)}
	var err error
	if m.Indptr, err = parts["indptr"].ints(); err != nil {
		return nil, fmt.Errorf("indptr of the csr_matrix: %w", err)
	}
	if m.Indices, err = parts["indices"].ints(); err != nil {
		return nil, fmt.Errorf("indices of the csr_matrix: %w", err)
	}
	if m.Values, err = parts["data"].floats(); err != nil {
		return nil, fmt.Errorf("data of the csr_matrix: %w", err)
	}
	return m, m.check()
}

func (m *CSR) check() error {
	nnz := int64(len(m.Indices))
	if len(m.Indptr) != m.Rows+1 || len(m.Values) != len(m.Indices) || m.Indptr[0] != 0 ||
		m.Indptr[m.Rows] != nnz {
		return fmt.Errorf("csr_matrix of %d rows: %d row offsets, %d columns and %d values do "+
			"not fit together",
			m.Rows, len(m.Indptr), len(m.Indices), len(m.Values))
	}
	for r := range m.Rows {
		if m.Indptr[r+1] < m.Indptr[r] {
			return fmt.Errorf("csr_matrix: row %d ends at entry %d, before its begin at %d", r,
				m.Indptr[r+1], m.Indptr[r])
		}
	}
	for i, c := range m.Indices {
		if c < 0 || c >= int64(m.Cols) {
			return fmt.Errorf("csr_matrix: entry %d lies in column %d of %d", i, c, m.Cols)
		}
	}
	return nil
}

// kind names a value of the stack for a message.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64:
		return "an integer"
	case []byte:
		return "a string"
	case tuple:
		return "a tuple"
	case *list:
		return "a list"
	case *dict:
		return "a dict"
	case *array:
		return "a numpy ndarray"
	case *sparse:
		return "a csr_matrix"
	case *dtype:
		return "a numpy dtype"
	case global:
		return "the class " + string(v)
	}
	return fmt.Sprintf("a %T", v)
}
