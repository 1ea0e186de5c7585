package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mostMethods is how many methods a type may have, those of embedded types included: what has more
// has several purposes.
const mostMethods = 45

// methodSet has the methods of a type by name, and the types of src that it embeds.
type methodSet struct {
	own      map[string]bool
	embedded []string
}

// No type of src has more methods than a reader can hold, devices apart: compute's interface is as
// wide as what a device can do.
func TestStyleTypesHaveFewMethods(t *testing.T) {
	sets := methodSets(t)
	var devices []string
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		n := len(promoted(sets, name, map[string]bool{}))
		switch {
		case n <= mostMethods:
		case strings.HasPrefix(name, "compute") ||
			slices.Contains(sets[name].embedded, "compute.Device"):
			devices = append(devices, name)
		default:
			t.Errorf("%s has %d methods, with those of embedded types: at most %d; split it by "+
				"purpose", name, n, mostMethods)
		}
	}
	t.Logf("devices with more than %d: %s", mostMethods, strings.Join(devices, ", "))
}

// promoted returns the names of the methods of a type and of what it embeds.
func promoted(sets map[string]*methodSet, name string, seen map[string]bool) map[string]bool {
	all, s := map[string]bool{}, sets[name]
	if s == nil || seen[name] { // a type of another module, or a cycle of pointers
		return all
	}
	seen[name] = true
	maps.Copy(all, s.own)
	for _, e := range s.embedded {
		maps.Copy(all, promoted(sets, e, seen))
	}
	return all
}

// methodSets reads what src declares outside its tests.
func methodSets(t *testing.T) map[string]*methodSet {
	sets := map[string]*methodSet{}
	of := func(name string) *methodSet {
		if sets[name] == nil {
			sets[name] = &methodSet{own: map[string]bool{}}
		}
		return sets[name]
	}
	for _, f := range goFiles(t) {
		if f.test {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		imported := map[string]string{} // package below src by its name in the file
		for _, i := range parsed.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			if pkg, ours := strings.CutPrefix(path, "halognn/src/"); ours {
				name := pkg[strings.LastIndex(pkg, "/")+1:]
				if i.Name != nil {
					name = i.Name.Name
				}
				imported[name] = pkg
			}
		}
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				of(typeName(fn.Recv.List[0].Type, f.pkg, imported)).own[fn.Name.Name] = true
			}
			block, _ := d.(*ast.GenDecl)
			if block == nil || block.Tok != token.TYPE {
				continue
			}
			for _, spec := range block.Specs {
				x := spec.(*ast.TypeSpec)
				s := of(f.pkg + "." + x.Name.Name)
				var fields *ast.FieldList
				switch body := x.Type.(type) {
				case *ast.StructType:
					fields = body.Fields
				case *ast.InterfaceType:
					fields = body.Methods
				default:
					continue
				}
				for _, field := range fields.List {
					if len(field.Names) == 0 {
						s.embedded = append(s.embedded, typeName(field.Type, f.pkg, imported))
					}
					if i, ok := x.Type.(*ast.InterfaceType); ok && i.Methods == fields {
						for _, name := range field.Names {
							s.own[name.Name] = true
						}
					}
				}
			}
		}
	}
	return sets
}

// typeName returns the package below src and the name of a type, without pointer and parameters;
// empty for a type of another module.
func typeName(e ast.Expr, pkg string, imported map[string]string) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return typeName(x.X, pkg, imported)
	case *ast.IndexExpr:
		return typeName(x.X, pkg, imported)
	case *ast.IndexListExpr:
		return typeName(x.X, pkg, imported)
	case *ast.Ident:
		return pkg + "." + x.Name
	case *ast.SelectorExpr:
		if from, ours := imported[x.X.(*ast.Ident).Name]; ours {
			return from + "." + x.Sel.Name
		}
	}
	return ""
}
