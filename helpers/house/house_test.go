package house

import (
	"bufio"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

// floors are the packages of the book from the top down. A package imports only what stands on a lower floor.
var floors = [][]string{
	{"cmd/forge"},
	{"helpers/lesson"},
	{"helpers/world", "helpers/notebook"},
	{"helpers/lab", "helpers/forge", "helpers/page", "helpers/ledger"},
	{"helpers/modular", "helpers/source", "helpers/answer", "helpers/kubeapiserver/build"},
	{"helpers/controlplane", "helpers/wire", "helpers/token", "helpers/kubeapiserver"},
	{"helpers/kubeapiserver/pinned", "helpers/record", "helpers/house"},
}

// leaves import nothing of the book: the record, so that a view needs nothing else, and what stands for itself.
var leaves = []string{"helpers/record", "helpers/answer", "helpers/token", "helpers/kubeapiserver/pinned"}

// views are made from a record, and know nothing of a lab.
var views = []string{"helpers/page", "helpers/ledger", "helpers/notebook"}

const (
	root    = "../.."
	module  = "modrev/"
	longest = 700 // lines of a file
	widest  = 120 // columns of a line, a tab being one
)

func load(t *testing.T, mode packages.LoadMode, tests bool) []*packages.Package {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{Mode: mode, Dir: root, Tests: tests, Context: t.Context()}, "./...")
	require.NoError(t, err, "loading the packages of the book")
	require.Zero(t, packages.PrintErrors(pkgs))
	return pkgs
}

func TestImportsPointDown(t *testing.T) {
	floor := map[string]int{}
	for i, names := range floors {
		for _, name := range names {
			floor[name] = i + 1
		}
	}
	for _, p := range load(t, packages.NeedName|packages.NeedImports, false) {
		from, _ := strings.CutPrefix(p.PkgPath, module)
		if from == "modrev" {
			continue // the chapters
		}
		if !assert.NotZero(t, floor[from], "%s stands on no floor: give it one in floors", from) {
			continue
		}
		for path := range p.Imports {
			to, ours := strings.CutPrefix(path, module)
			if !ours {
				continue
			}
			assert.Greater(t, floor[to], floor[from], "%s imports %s, which does not stand below it", from, to)
			assert.NotContains(t, leaves, from, "%s imports %s, and is to import nothing of the book", from, to)
			if slices.Contains(views, from) {
				assert.Contains(t, append(views, "helpers/record"), to, "%s is a view, and imports %s", from, to)
			}
		}
	}
}

func TestFilesAndLinesAreShortEnoughToRead(t *testing.T) {
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		n := 0
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			n++
			assert.LessOrEqual(t, utf8.RuneCountInString(lines.Text()), widest, "%s:%d is too wide", path, n)
		}
		assert.LessOrEqual(t, n, longest, "%s is too long: give a part of it a file of its own", path)
		return lines.Err()
	}))
}

// called are methods that other packages call through an interface: testify those of its TestingT, and token those of
// its Store.
var called = []string{
	"(*modrev/helpers/lab.Lab).Errorf", "(*modrev/helpers/lab.Lab).FailNow",
	"(*modrev/helpers/lab.Register).Do", "(*modrev/helpers/lab.Register).Future",
}

func TestTheLabAndTheWorldsExportNothingThatNobodyUses(t *testing.T) {
	watched := []string{module + "helpers/lab", module + "helpers/world"}
	used := map[string]bool{}
	var exported []types.Object
	for _, p := range load(t, packages.LoadSyntax, true) {
		for _, o := range p.TypesInfo.Uses {
			// A name that only its own package and its tests use is not exported for anybody.
			if o.Pkg() != nil && slices.Contains(watched, o.Pkg().Path()) && !strings.HasPrefix(p.PkgPath, o.Pkg().Path()) {
				used[nameOf(o)] = true
				for _, name := range mentioned(o.Type()) {
					used[name] = true
				}
			}
		}
		if slices.Contains(watched, p.PkgPath) && p.ID == p.PkgPath {
			exported = append(exported, exportedOf(p.Types)...)
		}
	}
	require.NotEmpty(t, exported)
	for _, o := range exported {
		if name := nameOf(o); !used[name] && !slices.Contains(called, name) {
			assert.Fail(t, "exported and unused", "%s", name)
		}
	}
}

// exportedOf are the exported functions, types, variables and methods of a package.
func exportedOf(p *types.Package) []types.Object {
	var out []types.Object
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !token.IsExported(name) {
			continue
		}
		out = append(out, o)
		named, ok := o.Type().(*types.Named)
		if _, isType := o.(*types.TypeName); !ok || !isType {
			continue
		}
		for m := range named.Methods() {
			// What prints or wraps is called by fmt and errors.
			if m.Exported() && m.Name() != "String" && m.Name() != "Error" && m.Name() != "Unwrap" {
				out = append(out, m)
			}
		}
	}
	return out
}

// mentioned are the types in the signature of a function, or the type of anything else: who calls a function that
// returns a Watcher uses Watchers.
func mentioned(t types.Type) []string {
	switch t := t.(type) {
	case *types.Named:
		return []string{nameOf(t.Obj())}
	case *types.Alias:
		return mentioned(types.Unalias(t))
	case *types.Pointer:
		return mentioned(t.Elem())
	case *types.Slice:
		return mentioned(t.Elem())
	case *types.Map:
		return append(mentioned(t.Key()), mentioned(t.Elem())...)
	case *types.Tuple:
		var out []string
		for v := range t.Variables() {
			out = append(out, mentioned(v.Type())...)
		}
		return out
	case *types.Signature:
		return append(mentioned(t.Params()), mentioned(t.Results())...)
	}
	return nil
}

func nameOf(o types.Object) string {
	if f, ok := o.(*types.Func); ok {
		return f.Origin().FullName()
	}
	if o.Pkg() == nil {
		return o.Name()
	}
	return o.Pkg().Path() + "." + o.Name()
}
