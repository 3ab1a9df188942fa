package source

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// parsed is one package of a tree, as syntax.
type parsed struct {
	module module
	fset   *token.FileSet
	files  []*ast.File
	decls  []declared
}

// declared is one thing that a package declares.
type declared struct {
	typ, name string // as in Ref.split
	label     string // as in Location.Func
	pos       token.Pos
}

// Find is where r is declared in this version. The error for a name that does not exist gives the
// names that come nearest to it. A module that is not in the module cache is downloaded first, until
// ctx ends.
func (t *Tree) Find(ctx context.Context, r Ref) (Location, error) {
	if r.Package == "" || r.Func == "" {
		return Location{}, fmt.Errorf("the reference %q is incomplete: it needs an import path and a declaration", r.String())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.parse(ctx, r.Package)
	if err != nil {
		return Location{}, fmt.Errorf("looking for %s: %w", r, err)
	}
	typ, name := r.split()
	for _, d := range p.decls {
		if d.typ == typ && d.name == name {
			return p.location(d.label, d.pos), nil
		}
	}
	return Location{}, fmt.Errorf("%s %s has no %s in package %s%s", p.module.path, p.module.version, r.Func, r.Package, nearMisses(p.decls, typ, name))
}

// location is the place of pos in the package.
func (p *parsed) location(label string, pos token.Pos) Location {
	at := p.fset.Position(pos)
	return Location{Module: p.module.path, Version: p.module.version, File: at.Filename, Func: label, Line: at.Line}
}

// parse reads one package, with its declarations.
func (t *Tree) parse(ctx context.Context, pkg string) (*parsed, error) {
	if p, ok := t.packages[pkg]; ok {
		return p, nil
	}
	m, files, err := t.files(ctx, pkg, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	p := &parsed{module: m, fset: t.fileSet(), files: files}
	for _, f := range p.files {
		p.decls = append(p.decls, declarations(f)...)
	}
	if t.packages == nil {
		t.packages = make(map[string]*parsed)
	}
	t.packages[pkg] = p
	return p, nil
}

// files parses the files of one package that a build for this platform compiles, tests aside, with
// the edits of the tree.
func (t *Tree) files(ctx context.Context, pkg string, mode parser.Mode) (module, []*ast.File, error) {
	m, dir, below, err := t.dirOf(ctx, pkg)
	if err != nil {
		return module{}, nil, err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return module{}, nil, fmt.Errorf("%s %s has no package %s: it may have moved", m.path, m.version, pkg)
	}
	if err != nil {
		return module{}, nil, fmt.Errorf("reading package %s: %w", pkg, err)
	}
	var files []*ast.File
	edited := make(map[string]bool)
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		match, err := build.Default.MatchFile(dir, name)
		if err != nil {
			return module{}, nil, fmt.Errorf("reading package %s: whether a build compiles one of its files: %w", pkg, err)
		}
		if !match {
			continue
		}
		src, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return module{}, nil, fmt.Errorf("reading package %s: %w", pkg, err)
		}
		inModule := path.Join(below, name)
		for _, o := range t.edits {
			if o.pkg != pkg || o.file != name {
				continue
			}
			edited[name] = true
			altered := o.edit(slices.Clone(src))
			if slices.Equal(altered, src) {
				return module{}, nil, fmt.Errorf("the edit of %s changed nothing: what it looks for is not there in %s %s", inModule, m.path, m.version)
			}
			src = altered
		}
		f, err := parser.ParseFile(t.fileSet(), inModule, src, mode)
		if err != nil {
			return module{}, nil, fmt.Errorf("parsing package %s: %w", pkg, err)
		}
		files = append(files, f)
	}
	for _, o := range t.edits {
		if o.pkg == pkg && !edited[o.file] {
			return module{}, nil, fmt.Errorf("there is no file %s to edit in package %s of %s %s", o.file, pkg, m.path, m.version)
		}
	}
	if len(files) == 0 {
		return module{}, nil, fmt.Errorf("%s %s has no Go files in %s", m.path, m.version, below)
	}
	return m, files, nil
}

// declarations lists what a file declares: functions, methods, types with their fields and
// interface methods, variables and constants.
func declarations(f *ast.File) []declared {
	var out []declared
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			typ, pointer := receiver(d)
			out = append(out, declared{typ: typ, name: d.Name.Name, label: funcLabel(typ, pointer, d.Name.Name), pos: d.Name.Pos()})
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						out = append(out, declared{name: n.Name, label: n.Name, pos: n.Pos()})
					}
				case *ast.TypeSpec:
					out = append(out, declared{name: s.Name.Name, label: s.Name.Name, pos: s.Name.Pos()})
					var members *ast.FieldList
					switch typ := s.Type.(type) {
					case *ast.InterfaceType:
						members = typ.Methods
					case *ast.StructType:
						members = typ.Fields
					default:
						continue
					}
					for _, m := range members.List {
						for _, n := range m.Names {
							out = append(out, declared{typ: s.Name.Name, name: n.Name, label: s.Name.Name + "." + n.Name, pos: n.Pos()})
						}
					}
				}
			}
		}
	}
	return out
}

// receiver is the name of the type that a method belongs to, and whether it takes a pointer to it.
// The name is empty for a function.
func receiver(d *ast.FuncDecl) (typ string, pointer bool) {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return "", false
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e, pointer = x.X, true
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name, pointer
		default:
			return "", pointer
		}
	}
}

// funcLabel writes a function or a method as Location.Func does.
func funcLabel(typ string, pointer bool, name string) string {
	switch {
	case typ == "":
		return name
	case pointer:
		return "(*" + typ + ")." + name
	default:
		return typ + "." + name
	}
}

// nearMisses names up to three declarations that typ.name may have been meant to be, as the end of
// a sentence.
func nearMisses(decls []declared, typ, name string) string {
	type miss struct {
		label string
		far   int
	}
	var misses []miss
	for _, d := range decls {
		far := distance(strings.ToLower(d.name), strings.ToLower(name))
		if d.name == name {
			far = 0
		}
		if far > 1+len(name)/4 {
			continue
		}
		if d.typ != typ {
			far += 2
		}
		misses = append(misses, miss{d.label, far})
	}
	slices.SortStableFunc(misses, func(a, b miss) int { return a.far - b.far })
	if len(misses) == 0 {
		return ", and nothing there has a similar name: look for where it moved"
	}
	var names []string
	for _, m := range misses[:min(3, len(misses))] {
		names = append(names, m.label)
	}
	return "; nearest there: " + strings.Join(names, ", ")
}

// distance is the edit distance of Levenshtein between two names, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// With is the tree with one file altered in memory, for the world in which the source says
// something else. File is its name inside the folder of the package, such as "store.go"; edit gets
// the source and returns the altered one, each time the file is read. The tree itself stays as it
// is. An edit that changes nothing, or of a file that is not there, is an error of whatever reads
// the package next.
func (t *Tree) With(pkg, file string, edit func(src []byte) []byte) *Tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	// What the edit cannot change is shared, so that an altered tree costs little.
	altered := &Tree{
		version:  t.version,
		sources:  t.sources,
		edits:    append(slices.Clone(t.edits), overlay{pkg: pkg, file: file, edit: edit}),
		fset:     t.fileSet(),
		modules:  maps.Clone(t.modules),
		requires: maps.Clone(t.requires),
		packages: maps.Clone(t.packages),
		imports:  maps.Clone(t.imports),
	}
	delete(altered.packages, pkg)
	delete(altered.imports, pkg)
	return altered
}
