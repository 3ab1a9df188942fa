package source

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/types"
	"slices"
	"strconv"

	"golang.org/x/mod/modfile"
)

// etcdClient is the package whose words a transaction is built with: Txn, Compare, OpPut.
const etcdClient = "go.etcd.io/etcd/client/v3"

// checked is a package with types, as far as they matter here: a type that comes from a package
// that cannot lead to etcd stays unknown, and go/types goes on without it.
type checked struct {
	*parsed
	types *types.Package
	info  *types.Info
	funcs map[*types.Func]*ast.FuncDecl
}

// errNotFollowed tells go/types to make up an empty package.
var errNotFollowed = errors.New("this package cannot lead to etcd")

// check type-checks a package and those of its imports that lead to the etcd client.
func (t *Tree) check(ctx context.Context, pkg string) (*checked, error) {
	if c, ok := t.checked[pkg]; ok {
		return c, nil
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	p, err := t.parse(ctx, pkg)
	if err != nil {
		return nil, err
	}
	c := &checked{parsed: p, funcs: make(map[*types.Func]*ast.FuncDecl), info: &types.Info{
		Types:      make(map[ast.Expr]types.TypeAndValue),
		Defs:       make(map[*ast.Ident]types.Object),
		Uses:       make(map[*ast.Ident]types.Object),
		Selections: make(map[*ast.SelectorExpr]*types.Selection),
	}}
	var broken error
	conf := types.Config{
		Importer: importer(func(path string) (*types.Package, error) {
			follow, err := t.leadsToEtcd(ctx, path)
			if err != nil {
				broken = errors.Join(broken, err)
			}
			if !follow {
				return nil, errNotFollowed
			}
			imported, err := t.check(ctx, path)
			if err != nil {
				broken = errors.Join(broken, err)
				return nil, err
			}
			return imported.types, nil
		}),
		// What is missing is missing on purpose; a call that stays without a type is not followed.
		Error:                    func(error) {},
		IgnoreFuncBodies:         pkg == etcdClient,
		DisableUnusedImportCheck: true,
		FakeImportC:              true,
	}
	c.types, _ = conf.Check(pkg, t.fileSet(), p.files, c.info)
	if broken != nil {
		return nil, broken
	}
	for _, f := range p.files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				if obj, ok := c.info.Defs[d.Name].(*types.Func); ok {
					c.funcs[obj] = d
				}
			}
		}
	}
	if t.checked == nil {
		t.checked = make(map[string]*checked)
	}
	t.checked[pkg] = c
	return c, nil
}

// importer makes a types.Importer of a function.
type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }

// leadsToEtcd reports whether a package is the etcd client or imports it, at first hand or through
// others. Only modules that require the client are looked at, so that nothing else is downloaded.
func (t *Tree) leadsToEtcd(ctx context.Context, pkg string) (bool, error) {
	if pkg == etcdClient {
		return true, nil
	}
	if leads, ok := t.leads[pkg]; ok {
		return leads, nil
	}
	leads, err := t.importsEtcd(ctx, pkg)
	if err != nil {
		return false, err
	}
	if t.leads == nil {
		t.leads = make(map[string]bool)
	}
	t.leads[pkg] = leads
	return leads, nil
}

// importsEtcd is leadsToEtcd for a package that is not the client and was not asked about before.
func (t *Tree) importsEtcd(ctx context.Context, pkg string) (bool, error) {
	requires, err := t.requiresEtcd(ctx, pkg)
	if err != nil || !requires {
		return false, err
	}
	imports, err := t.importsOf(ctx, pkg)
	if err != nil {
		return false, fmt.Errorf("reading the imports of %s: %w", pkg, err)
	}
	for _, path := range imports {
		if leads, err := t.leadsToEtcd(ctx, path); leads || err != nil {
			return leads, err
		}
	}
	return false, nil
}

// importsOf lists what a package imports.
func (t *Tree) importsOf(ctx context.Context, pkg string) ([]string, error) {
	if imports, ok := t.imports[pkg]; ok {
		return imports, nil
	}
	_, files, err := t.files(ctx, pkg, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var imports []string
	for _, f := range files {
		for _, s := range f.Imports {
			if path, err := strconv.Unquote(s.Path.Value); err == nil && !slices.Contains(imports, path) {
				imports = append(imports, path)
			}
		}
	}
	if t.imports == nil {
		t.imports = make(map[string][]string)
	}
	t.imports[pkg] = imports
	return imports, nil
}

// requiresEtcd reports whether the module that holds pkg is the etcd client's or requires it.
func (t *Tree) requiresEtcd(ctx context.Context, pkg string) (bool, error) {
	s, path := t.sourceOf(pkg)
	if path == "" {
		return false, nil
	}
	if path == etcdClient {
		return true, nil
	}
	if requires, ok := t.requires[path]; ok {
		return requires, nil
	}
	goMod, err := s.goMod(ctx, path)
	if err != nil {
		return false, t.noSource(ctx, path, err)
	}
	file, err := readGoMod(goMod, modfile.ParseLax)
	if err != nil {
		return false, fmt.Errorf("reading what %s requires: %w", path, err)
	}
	if t.requires == nil {
		t.requires = make(map[string]bool)
	}
	t.requires[path] = slices.Contains(required(file), etcdClient)
	return t.requires[path], nil
}
