package pickle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// Types of stack values besides nil, bool, int64 and []byte (a Python 2 str, a view of the input).
type (
	tuple []any
	list  struct{ items []any }
	dict  struct{ keys, values []any }
	// global is a name from knownGlobals.
	global string
)

// Opcodes of protocol 2 that the files use; CPython's Lib/pickletools.py describes each.
const (
	opProto, opStop, opMark, opNone, opTrue, opFalse    = 0x80, '.', '(', 'N', 0x88, 0x89
	opInt4, opInt1, opInt2, opLong1                     = 'J', 'K', 'M', 0x8a
	opString4, opString1                                = 'T', 'U'
	opEmptyTuple, opTuple, opTuple1, opTuple2, opTuple3 = ')', 't', 0x85, 0x86, 0x87
	opEmptyList, opAppend, opAppends                    = ']', 'a', 'e'
	opEmptyDict, opSetItem, opSetItems                  = '}', 's', 'u'
	opPut1, opPut4, opGet1, opGet4                      = 'q', 'r', 'h', 'j'
	opGlobal, opReduce, opNewObj, opBuild               = 'c', 'R', 0x81, 'b'
)

// machine is the pickle stack machine. Pops do not reach values below the last mark.
type machine struct {
	data  []byte
	pos   int
	stack []any
	marks []int
	memo  map[uint32]any
}

// fault is the panic value with which helpers end a load: load converts it to an error with the
// opcode's offset.
type fault struct{ text string }

func fail(format string, args ...any) { panic(fault{fmt.Sprintf(format, args...)}) }

// load runs the pickle in data and returns the object it describes.
func load(data []byte) (v any, err error) {
	m := &machine{data: data, memo: map[uint32]any{}}
	at := 0
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(fault)
			if !ok {
				panic(r)
			}
			v, err = nil, fmt.Errorf("byte %d: %s", at, f.text)
		}
	}()
	for {
		at = m.pos
		op := m.take(1)[0]
		if op == opStop {
			return m.pop(), nil
		}
		m.step(op)
	}
}

func (m *machine) step(op byte) {
	switch op {
	case opProto:
		if p := m.take(1)[0]; p > 2 {
			fail("pickle protocol %d; Planetoid files are protocol 2: dump them again with "+
				"protocol=2", p)
		}
	case opMark:
		m.marks = append(m.marks, len(m.stack))
	case opNone:
		m.push(nil)
	case opTrue, opFalse:
		m.push(op == opTrue)
	case opInt1:
		m.push(int64(m.take(1)[0]))
	case opInt2:
		m.push(int64(binary.LittleEndian.Uint16(m.take(2))))
	case opInt4:
		m.push(int64(int32(m.uint32())))
	case opLong1:
		m.push(m.long())
	case opString1:
		m.push(m.take(int(m.take(1)[0])))
	case opString4:
		m.push(m.take(int(m.uint32())))
	case opEmptyTuple:
		m.push(tuple(nil))
	case opTuple:
		m.push(tuple(m.popMark()))
	case opTuple1, opTuple2, opTuple3:
		t := make(tuple, int(op)-opTuple1+1)
		for i := len(t) - 1; i >= 0; i-- {
			t[i] = m.pop()
		}
		m.push(t)
	case opEmptyList:
		m.push(&list{})
	case opAppend:
		item := m.pop()
		m.list().items = append(m.list().items, item)
	case opAppends:
		items := m.popMark()
		m.list().items = append(m.list().items, items...)
	case opEmptyDict:
		m.push(&dict{})
	case opSetItem:
		v, k := m.pop(), m.pop()
		m.dict().set([]any{k, v})
	case opSetItems:
		pairs := m.popMark()
		m.dict().set(pairs)
	case opPut1:
		m.memo[uint32(m.take(1)[0])] = m.top()
	case opPut4:
		m.memo[m.uint32()] = m.top()
	case opGet1:
		m.get(uint32(m.take(1)[0]))
	case opGet4:
		m.get(m.uint32())
	case opGlobal:
		m.push(m.global())
	case opReduce, opNewObj:
		args, callee := m.pop(), m.pop()
		m.push(construct(op, callee, args))
	case opBuild:
		state := m.pop()
		build(m.top(), state)
	default:
		fail("opcode 0x%02x, which no Planetoid file uses; the file is damaged or of another kind",
			op)
	}
}

// take returns the next n bytes of the input, as a view.
func (m *machine) take(n int) []byte {
	if n > len(m.data)-m.pos {
		fail("the file ends in the middle of a value; it is truncated: fetch it again")
	}
	m.pos += n
	return m.data[m.pos-n : m.pos : m.pos]
}

func (m *machine) uint32() uint32 { return binary.LittleEndian.Uint32(m.take(4)) }

// long reads a little-endian two's complement number of up to 8 bytes.
func (m *machine) long() int64 {
	b := m.take(int(m.take(1)[0]))
	if len(b) > 8 {
		fail("an integer of %d bytes; at most 8 fit", len(b))
	}
	var x int64
	for i, c := range b {
		x |= int64(c) << (8 * i)
	}
	unused := 64 - 8*len(b)
	return x << unused >> unused
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

func (m *machine) floor() int {
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1]
}

func (m *machine) top() any {
	if len(m.stack) <= m.floor() {
		fail("the value stack is empty; the file is damaged")
	}
	return m.stack[len(m.stack)-1]
}

func (m *machine) pop() any {
	v := m.top()
	m.stack = m.stack[:len(m.stack)-1]
	return v
}

// popMark removes the last mark and returns what was pushed after it, as a copy.
func (m *machine) popMark() []any {
	if len(m.marks) == 0 {
		fail("a mark is missing; the file is damaged")
	}
	at := m.floor()
	m.marks = m.marks[:len(m.marks)-1]
	items := slices.Clone(m.stack[at:])
	m.stack = m.stack[:at]
	return items
}

func (m *machine) list() *list {
	l, ok := m.top().(*list)
	if !ok {
		fail("appends to %s", kind(m.top()))
	}
	return l
}

func (m *machine) dict() *dict {
	d, ok := m.top().(*dict)
	if !ok {
		fail("sets items of %s", kind(m.top()))
	}
	return d
}

func (d *dict) set(pairs []any) {
	if len(pairs)%2 != 0 {
		fail("a dict gets a key without a value")
	}
	for i := 0; i < len(pairs); i += 2 {
		d.keys = append(d.keys, pairs[i])
		d.values = append(d.values, pairs[i+1])
	}
}

func (m *machine) get(i uint32) {
	v, ok := m.memo[i]
	if !ok {
		fail("refers to value %d, which was never stored", i)
	}
	m.push(v)
}

// global reads the two lines of a GLOBAL, module and name, and rejects a name that is not on the
// list.
func (m *machine) global() global {
	var parts [2]string
	for i := range parts {
		end := bytes.IndexByte(m.data[m.pos:], '\n')
		if end < 0 || end > 200 {
			fail("a global name without an end; the file is damaged")
		}
		parts[i] = string(m.take(end + 1)[:end])
	}
	name := parts[0] + "." + parts[1]
	g, ok := knownGlobals[name]
	if !ok {
		fail("the global %q is refused: no Planetoid file needs it, and a pickle that names it "+
			"could run code elsewhere; get the file from a source you trust", name)
	}
	return g
}
