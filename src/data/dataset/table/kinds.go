package table

import (
	"bytes"
	"fmt"
	"slices"
)

const (
	archive = "an archive; unpack it and name what is in it"
	hdf5    = "an HDF5 file; save its arrays with numpy.savez"
	parquet = "a Parquet file; save it as CSV: pandas.read_parquet(f).to_csv(g, index=False)"
	feather = "a Feather file; save it as CSV: pandas.read_feather(f).to_csv(g, index=False)"
	pickled = "a Python pickle, which could run code; load it in Python and save its arrays " +
		"with numpy.savez or, if it is a dict of lists, write a dataset by " +
		"halognn.write_dataset(DIR, networkx.Graph(dict))"
	packed = "compressed, but not by gzip, which is the only compression that is read; unpack it"
)

// Kinds says, by the extension of a file's name, what to do with files of other programs that users
// take for tables.
var Kinds = map[string]string{
	".bz2": packed, ".xz": packed, ".zst": packed, ".lz4": packed,
	".zip": archive, ".7z": archive, ".rar": archive, ".tar": archive, ".tgz": archive,
	".dot": dot, ".gv": dot, ".dl": dl,
	".xlsx":    "a spreadsheet; save it as CSV (UTF-8)",
	".parquet": parquet, ".feather": feather, ".h5": hdf5, ".hdf5": hdf5, ".pkl": pickled,
	".pickle": pickled,
}

// magics are the first bytes by which files of other programs are recognized, whatever the names of
// the files are.
var magics = []struct{ begin, what string }{
	{"BZh", packed + " (bzip2)"}, {"\xfd7zXZ\x00", packed + " (xz)"},
	{"\x28\xb5\x2f\xfd", packed + " (zstd)"},
	{"PAR1", parquet}, {"ARROW1", feather}, {"\x89HDF", hdf5},
	{"\x93NUMPY", "a NumPy array; --format npz reads arrays"},
	{"\x80\x02", pickled}, {"\x80\x03", pickled}, {"\x80\x04", pickled}, {"\x80\x05", pickled},
	{"PK\x03\x04", "a zip archive; if it is a spreadsheet (.xlsx), save it as CSV (UTF-8); if it " +
		"holds files, unpack it and name the file to read"},
}

// texts are the beginnings of files that are text, but no tables.
var texts = []struct{ begin, what string }{
	{"<?xml", xml}, {"<!doctype", xml}, {"<html", xml},
	{"digraph {", dot}, {"digraph g", dot}, {"graph {", dot}, {"strict digraph", dot},
	{"strict graph", dot},
	{"*vertices ", pajek}, {"*network", pajek}, {"graph [", gml}, {"graph\n[", gml},
	{"creator \"", gml},
	{"dl n=", dl}, {"dl n =", dl}, {"dl nr", dl},
	{"version https://git-lfs", "the pointer of a file in Git LFS; git lfs pull fetches the file " +
		"itself"},
}

const dot = "a DOT file of Graphviz; in Python, halognn.write_dataset(DIR, " +
	"networkx.nx_pydot.read_dot(FILE)) imports it"

const (
	pajek = "a Pajek file: in Python, halognn.write_dataset(DIR, networkx.read_pajek(FILE)) " +
		"imports it"
	gml = "a GML file: in Python, halognn.write_dataset(DIR, networkx.read_gml(FILE)) imports it"
)

const dl = "a DL file of UCINET; export it as an edge list"

const xml = "XML or a web page; if a download gave this, fetch the file again; if it is a " +
	"graph, halognn.write_dataset(DIR, networkx.read_graphml(FILE)) in Python imports it, or " +
	"the same with read_gexf"

// notText returns an error if the beginning of a file, head, shows that it is no table.
func (r *Reader) notText(head []byte) error {
	whole := head
	head = head[:min(len(head), 1<<12)]
	for _, of := range texts {
		if text := bytes.TrimSpace(bytes.TrimPrefix(head, mark)); len(text) >= len(of.begin) &&
			bytes.EqualFold(text[:len(of.begin)], []byte(of.begin)) {
			return fmt.Errorf("%s: %w: %s", r.path, ErrValue, of.what)
		}
	}
	control := func(c byte) bool {
		return c < ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f'
	}
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")),
		wide(head):
		return fmt.Errorf("%s: %w: UTF-16 text; convert it: iconv -f UTF-16%s -t UTF-8", r.path,
			ErrValue, order(head))
	case !slices.ContainsFunc(head, control) && bytes.IndexByte(whole, 0) < 0:
		return nil
	}
	for _, of := range magics {
		if bytes.HasPrefix(head, []byte(of.begin)) {
			return fmt.Errorf("%s: %w: %s", r.path, ErrValue, of.what)
		}
	}
	if bytes.IndexByte(whole, 0) >= 0 {
		return fmt.Errorf("%s: %w: it holds zero bytes, so it is not a text table",
			r.path, ErrValue)
	}
	return nil
}

// wide reports whether every second byte is 0, as in ASCII text that is encoded as UTF-16.
func wide(head []byte) bool {
	var zero [2]int
	for i, c := range head {
		if c == 0 {
			zero[i%2]++
		}
	}
	least := max(3, len(head)*2/5)
	return zero[0] >= least && zero[1] == 0 || zero[1] >= least && zero[0] == 0
}

// order returns "BE" or "LE", which iconv adds to the name UTF-16 to say the byte order of a text
// without a byte order mark. It returns "" if the two bytes of head do not show the order.
func order(head []byte) string {
	switch {
	case head[0] == 0:
		return "BE"
	case head[1] == 0:
		return "LE"
	}
	return ""
}
