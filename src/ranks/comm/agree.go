package comm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"halognn/src/base/mem"
)

// The functions below are collective, block, and allocate memory. They are for set-up, for checks
// before the first step, and for reports once an epoch.

// Allgather returns the values of every rank in rank order. All ranks must pass the same number of
// values.
func Allgather[T mem.Number](c Comm, values ...T) ([]T, error) {
	all := make([]T, c.Size()*len(values))
	if len(values) == 0 {
		return all, nil
	}
	rows := make([]int, c.Size())
	for r := range rows {
		rows[r] = 1
	}
	rowBytes := len(values) * int(unsafe.Sizeof(values[0]))
	return all, c.StartAllgatherv(mem.Bytes(values), mem.Bytes(all), rows, rowBytes).Wait()
}

// Allgatherv returns the values of every rank in rank order. Ranks may pass different numbers of
// values.
func Allgatherv[T mem.Number](c Comm, own []T) ([][]T, error) {
	lengths, err := Allgather(c, len(own))
	if err != nil {
		return nil, err
	}
	total := 0
	for _, n := range lengths {
		total += n
	}
	all, size := make([]T, total), int(unsafe.Sizeof(*new(T)))
	if err := c.StartAllgatherv(mem.Bytes(own), mem.Bytes(all), lengths, size).Wait(); err != nil {
		return nil, err
	}
	parts := make([][]T, len(lengths))
	for r, n := range lengths {
		parts[r], all = all[:n:n], all[n:]
	}
	return parts, nil
}

// AllgatherStrings returns the texts of all ranks, in rank order.
func AllgatherStrings(c Comm, own string) ([]string, error) {
	parts, err := Allgatherv(c, []byte(own))
	texts := make([]string, len(parts))
	for r, p := range parts {
		texts[r] = string(p)
	}
	return texts, err
}

// AllgatherJSON returns the values of all ranks, in rank order. Values are sent as JSON.
func AllgatherJSON[T any](c Comm, own T) ([]T, error) {
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	parts, err := Allgatherv(c, text)
	all := make([]T, len(parts))
	for r, p := range parts {
		if err := json.Unmarshal(p, &all[r]); err != nil {
			return nil, fmt.Errorf("rank %d runs another version of halognn: %w; start all ranks "+
				"from one installation", r, err)
		}
	}
	return all, err
}

// Bcast returns the data of rank 0; the data of other ranks is ignored.
func Bcast[T ~string | ~[]byte](c Comm, own T) (T, error) {
	parts, err := Allgatherv(c, []byte(own))
	if err != nil {
		return own, err
	}
	return T(parts[0]), nil
}

// AgreeAny reports whether any rank passed true.
func AgreeAny(c Comm, value bool) (bool, error) {
	mine := 0
	if value {
		mine = 1
	}
	most, err := AgreeMax(c, mine)
	return most > 0, err
}

// AgreeMax returns the largest value that any rank passed.
func AgreeMax[T mem.Number](c Comm, value T) (T, error) {
	all, err := Allgather(c, value)
	if err != nil {
		return value, err
	}
	for _, v := range all {
		value = max(value, v)
	}
	return value, nil
}

// AgreeSum returns the sum of the values of all ranks, added in rank order.
func AgreeSum[T mem.Number](c Comm, value T) (T, error) {
	all, err := Allgather(c, value)
	var total T
	for _, v := range all {
		total += v
	}
	return total, err
}

// Agreed is an error that every rank returned from the same collective. Because all ranks have it,
// no rank still waits for another. So the job can end in order, and a single rank prints the error.
type Agreed struct {
	Rank int  // rank of the caller
	Own  bool // whether Err is the caller's own error; on other ranks Err has only its text
	Err  error
}

func (e *Agreed) Error() string { return e.Err.Error() }
func (e *Agreed) Unwrap() error { return e.Err }

// AgreedOn makes an Agreed of an error that the caller knows to be returned by every rank.
func AgreedOn(c Comm, err error) error { return &Agreed{Rank: c.Rank(), Own: true, Err: err} }

// IsAgreed reports whether err is an Agreed, which every rank has.
func IsAgreed(err error) bool {
	a := (*Agreed)(nil)
	return errors.As(err, &a)
}

// Agree returns nil if no rank passes an error. If ranks pass errors, every rank gets an Agreed
// with the error of the first of them. After a step that may fail on one rank, call Agree before
// the next collective. Otherwise ranks would wait there for a rank that has given up. The failing
// rank gets its own error, and the other ranks get only the text of that error. The text names the
// rank unless all ranks pass the same text. If communication fails, the error is not an Agreed.
func Agree(c Comm, mine error) error {
	text := ""
	if mine != nil {
		text = mine.Error()
	}
	all, err := AllgatherStrings(c, text)
	if err != nil {
		return errors.Join(mine, err)
	}
	first, same := -1, true
	for r, t := range all {
		if len(t) > 0 && first < 0 {
			first = r
		}
		same = same && t == all[0]
	}
	if first < 0 {
		return nil
	}
	own := all[first] == text
	if !own {
		mine = errors.New(all[first])
	}
	// an error with the same text on all ranks names no rank
	if !same {
		mine = fmt.Errorf("rank %d: %w", first, mine)
	}
	return &Agreed{Rank: c.Rank(), Own: own, Err: mine}
}

// AgreedCode returns the same exit code on every rank, for an Agreed error that all ranks have.
// Every rank passes its own code, and the result is the code of the first rank whose own error this
// is. Other ranks have only the text of the error, but a program derives its exit code from the
// type. Collective.
func AgreedCode(c Comm, err error, code int) (int, error) {
	own := 0
	if a := (*Agreed)(nil); errors.As(err, &a) && a.Own {
		own = 1
	}
	all, err := Allgather(c, own, code)
	for r := 0; err == nil && r < len(all); r += 2 {
		if all[r] > 0 {
			return all[r+1], nil
		}
	}
	return code, err
}

// OnFirst calls f on rank 0 only. If f returns an error, every rank gets it, as from Agree.
func OnFirst(c Comm, f func() error) error {
	var err error
	if c.Rank() == 0 {
		err = f()
	}
	return Agree(c, err)
}

// AllEqual returns an error that wraps ErrMismatch unless all ranks passed the same value. All
// ranks return the same error. It names the first rank that differs from rank 0, and the first line
// that differs. The argument `name` is the name of the compared value, for example "config" or
// "shard identity".
func AllEqual(c Comm, name, value string) error {
	all, err := AllgatherStrings(c, value)
	if err != nil {
		return fmt.Errorf("comparing the %s of all ranks: %w", name, err)
	}
	for r := range all {
		if all[r] != all[0] {
			mine, first := difference(all[r], all[0])
			return fmt.Errorf("%w: %s is %q on rank %d, but %q on rank 0",
				ErrMismatch, name, mine, r, first)
		}
	}
	return nil
}

// difference finds the first line in which two texts differ. It returns this line of each text,
// without indentation.
func difference(a, b string) (string, string) {
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, "\n")
		y, b, _ = strings.Cut(b, "\n")
		if x != y {
			return strings.TrimSpace(x), strings.TrimSpace(y)
		}
	}
	return "", ""
}

// NodeOf returns the communicator of the ranks on this rank's node. If ranksPerNode > 0, ranks are
// divided into groups of ranksPerNode consecutive ranks, and each group counts as a node.
func NodeOf(c Comm, ranksPerNode int) (Comm, error) {
	if ranksPerNode > 0 {
		return c.Split(c.Rank()/ranksPerNode, c.Rank())
	}
	return c.Node()
}

// RanksHere returns the ranks of c on this rank's node, as NodeOf defines it.
func RanksHere(c Comm, ranksPerNode int) ([]int, error) {
	node, err := NodeOf(c, ranksPerNode)
	if err != nil {
		return nil, err
	}
	here, err := Allgather(node, c.Rank())
	if err != nil {
		return nil, err
	}
	return here, node.Free()
}
