package nn

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"

	"halognn/src/base/mem"
)

// Tensor is a named float32 array in C order on the host.
type Tensor struct {
	Name  string
	Shape []int // empty for a scalar
	Data  []float32
}

// A safetensors file (github.com/huggingface/safetensors) is
//
//	8 bytes  length n of the header, little-endian
//	n bytes  JSON: {"name": {"dtype": "F32", "shape": [2,3], "data_offsets": [begin, end]}, ...,
//	         "__metadata__": {"key": "text"}}, padded with blanks, here so that
//	         the elements begin at a multiple of 64
//	the rest elements, little-endian, C order, without gaps; offsets count from here
const (
	safetensorsMetadata  = "__metadata__"
	safetensorsAlign     = 64
	safetensorsMaxHeader = 100 << 20 // the limit of the reference implementation
)

// ErrSafetensors is wrapped by errors about the content of a safetensors file.
var ErrSafetensors = errors.New("not a valid safetensors file of float32 tensors")

// tensorInfo is the header's entry of one tensor.
type tensorInfo struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// WriteSafetensors writes tensors and metadata to path. The file appears only when it is complete,
// because it is written under a temporary name, synced and renamed. PyTorch reads it with
// safetensors.torch.load_file. Equal content gives equal bytes.
func WriteSafetensors(path string, tensors []Tensor, metadata map[string]string) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithPermissions(0o666))
	if err != nil {
		return err
	}
	defer f.Cleanup() // has no effect after the rename
	if err := FormatSafetensors(f, tensors, metadata); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.CloseAtomicallyReplace()
}

// FormatSafetensors writes the bytes of a safetensors file to w. It calls Write once for the
// header, and once for every tensor.
func FormatSafetensors(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	header, err := formatHeader(tensors, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range tensors {
		if _, err := w.Write(mem.Bytes(t.Data)); err != nil {
			return err
		}
	}
	return nil
}

// formatHeader returns the beginning of the file: the length of the header and the padded JSON.
// encoding/json sorts the keys of maps, so equal content gives equal bytes.
func formatHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	entries := make(map[string]any, len(tensors)+1)
	if len(metadata) > 0 {
		entries[safetensorsMetadata] = metadata
	}
	end := int64(0)
	for _, t := range tensors {
		if _, twice := entries[t.Name]; twice || t.Name == safetensorsMetadata {
			return nil, fmt.Errorf("tensor name %q is taken", t.Name)
		}
		shape := slices.Clone(t.Shape)
		if shape == nil {
			shape = []int{} // an empty list, because null is not a valid shape
		}
		if n, ok := elements(shape); !ok || n != int64(len(t.Data)) {
			return nil, fmt.Errorf("tensor %q has shape %v but %d elements", t.Name, t.Shape,
				len(t.Data))
		}
		begin := end
		end += 4 * int64(len(t.Data))
		entries[t.Name] = tensorInfo{DType: "F32", Shape: shape, Offsets: [2]int64{begin, end}}
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, err
	}
	for (8+len(text))%safetensorsAlign != 0 {
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// elements returns the number of elements of a tensor with the given shape. If an extent is
// negative or the tensor's bytes exceed an int64, ok is false.
func elements(shape []int) (n int64, ok bool) {
	n = 1
	for _, d := range shape {
		if d < 0 || (d > 0 && n > math.MaxInt64/8/int64(d)) {
			return 0, false
		}
		n *= int64(d)
	}
	return n, true
}

// ReadSafetensors reads a file of float32 tensors and returns them in file order, with the
// metadata. If the file is cut short, has other element types (as a model saved in half precision
// has), or has offsets that overlap or leave gaps, the error says so and names the file.
func ReadSafetensors(path string) ([]Tensor, map[string]string, error) {
	f, err := mem.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	tensors, metadata, err := readSafetensors(bufio.NewReaderSize(f, 1<<20), info.Size())
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %w; restore the file, or train again",
			path, ErrSafetensors, err)
	}
	return tensors, metadata, nil
}

// ReadInto reads tensors from a file into the Data of the given tensors. It finds each tensor in
// the file by name and checks its shape. It needs no other memory.
func ReadInto(path string, tensors []Tensor) error {
	f, err := mem.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	entries, _, err := readSafetensorsHeader(f, info.Size())
	left := slices.Clone(tensors)
	for _, e := range entries {
		i := slices.IndexFunc(left, func(t Tensor) bool { return t.Name == e.name })
		if i < 0 || !slices.Equal(left[i].Shape, e.Shape) {
			_, err = f.Seek(e.Offsets[1]-e.Offsets[0], io.SeekCurrent)
		} else {
			_, err = io.ReadFull(f, mem.Bytes(left[i].Data))
			left = slices.Delete(left, i, i+1)
		}
		if err != nil {
			break
		}
	}
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("it has no tensor %q of shape %v: it was written for other parts",
			left[0].Name, left[0].Shape)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w; restore the file, or train again", path, ErrSafetensors, err)
	}
	return nil
}

// ParseSafetensors does what ReadSafetensors does, for a file that is in memory.
func ParseSafetensors(file []byte) ([]Tensor, map[string]string, error) {
	tensors, metadata, err := readSafetensors(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrSafetensors, err)
	}
	return tensors, metadata, nil
}

// readSafetensorsHeader reads the header, and returns its entries in the order of the tensors in
// the file.
func readSafetensorsHeader(r io.Reader, size int64) ([]entry, map[string]string, error) {
	var length [8]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, nil, fmt.Errorf("the file has %d bytes, too few for a header", size)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > safetensorsMaxHeader || int64(n) > size-8 {
		return nil, nil, fmt.Errorf("it claims a header of %d bytes, but the file has only %d "+
			"bytes", n, size)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, nil, err
	}
	return parseSafetensorsHeader(text, size-8-int64(n))
}

func readSafetensors(r io.Reader, size int64) ([]Tensor, map[string]string, error) {
	entries, metadata, err := readSafetensorsHeader(r, size)
	if err != nil {
		return nil, nil, err
	}
	tensors := make([]Tensor, len(entries))
	for i, e := range entries {
		raw := make([]byte, e.Offsets[1]-e.Offsets[0])
		if _, err := io.ReadFull(r, raw); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", e.name, err)
		}
		data := make([]float32, len(raw)/4)
		for j := range data {
			data[j] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:]))
		}
		tensors[i] = Tensor{Name: e.name, Shape: e.Shape, Data: data}
	}
	return tensors, metadata, nil
}

// entry is the header's entry of one tensor, with the tensor's name.
type entry struct {
	name string
	tensorInfo
}

// parseSafetensorsHeader returns the entries of the header, sorted by offset. It checks that the
// tensors cover exactly dataBytes bytes.
func parseSafetensorsHeader(text []byte, dataBytes int64) (sorted []entry,
	metadata map[string]string, err error) {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	for name, raw := range entries {
		var target any = &metadata
		e := entry{name: name}
		if name != safetensorsMetadata {
			target = &e.tensorInfo
		}
		if err := json.Unmarshal(raw, target); err != nil {
			return nil, nil, fmt.Errorf("header entry %q: %w", name, err)
		}
		if name != safetensorsMetadata {
			sorted = append(sorted, e)
		}
	}
	// an empty tensor has the same offset as the next tensor; comparing also ends and names makes
	// the order unique
	slices.SortFunc(sorted, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Offsets[0], b.Offsets[0]),
			cmp.Compare(a.Offsets[1], b.Offsets[1]), cmp.Compare(a.name, b.name))
	})
	end := int64(0)
	for _, e := range sorted {
		count, ok := elements(e.Shape)
		switch {
		case e.DType != "F32":
			return nil, nil,
				fmt.Errorf("tensor %q has element type %q; convert it to float32 (F32)", e.name,
					e.DType)
		case e.Offsets[0] != end || !ok || e.Offsets[1]-e.Offsets[0] != 4*count:
			return nil, nil, fmt.Errorf("tensor %q of shape %v lies at bytes %d to %d, but the "+
				"tensor before it ends at byte %d",
				e.name, e.Shape, e.Offsets[0], e.Offsets[1], end)
		}
		end = e.Offsets[1]
	}
	if end != dataBytes {
		return nil, nil, fmt.Errorf("the header describes %d bytes of elements, but the file "+
			"holds %d",
			end, dataBytes)
	}
	return sorted, metadata, nil
}
