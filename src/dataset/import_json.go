package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"halognn/src/mem"
)

// eachMember calls visit with every key of the object in a JSON file; visit must decode exactly the
// value. It holds one value at a time. Errors name the file, the byte and the key.
func eachMember(path string, visit func(key string, d *json.Decoder) error) error {
	f, err := mem.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	fail := func(err error) error {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%s: truncated after byte %d; fetch the file again", path,
				d.InputOffset())
		}
		return fmt.Errorf("%s: byte %d: %w", path, d.InputOffset(), err)
	}
	token, err := d.Token()
	if err != nil {
		return fail(err)
	}
	if token != json.Delim('{') {
		return fail(errors.New("want a JSON object"))
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return fail(err)
		}
		key, _ := token.(string) // the decoder accepts nothing but strings as keys
		if err := visit(key, d); err != nil {
			return fail(fmt.Errorf("key %q: %w", key, err))
		}
	}
	if _, err := d.Token(); err != nil {
		return fail(err)
	}
	return nil
}

// decodeNumbers decodes a value that is a number or a list of numbers. It rejects null, for which
// encoding/json would keep the old content of the list.
func decodeNumbers(d *json.Decoder, raw *json.RawMessage, into any) error {
	if err := d.Decode(raw); err != nil {
		return err
	}
	if bytes.Contains(*raw, []byte("null")) {
		return fmt.Errorf("%w: null where a number belongs", ErrValue)
	}
	return json.Unmarshal(*raw, into)
}

// vertexKey parses a key as a vertex id below n that has not occurred before.
func vertexKey(key string, n int, seen []bool) (int, error) {
	v, err := strconv.Atoi(key)
	if err != nil || v < 0 || v >= n {
		return 0, fmt.Errorf("%w: want a vertex id, 0 to %d", ErrValue, n-1)
	}
	if seen[v] {
		return 0, fmt.Errorf("%w: the vertex comes twice", ErrValue)
	}
	seen[v] = true
	return v, nil
}
