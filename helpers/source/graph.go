package source

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// graph is who calls whom among the packages of a tree that are checked.
type graph struct{ tree *Tree }

// function is a function with its body.
type function struct {
	pkg  *checked
	obj  *types.Func
	decl *ast.FuncDecl
}

// at is where the function is declared.
func (f *function) at() Location {
	typ, pointer := receiver(f.decl)
	return f.pkg.location(funcLabel(typ, pointer, f.decl.Name.Name), f.decl.Name.Pos())
}

// atLine is the function, with the line of something in it.
func (f *function) atLine(pos token.Pos) Location {
	l := f.at()
	l.Line = f.pkg.fset.Position(pos).Line
	return l
}

// named is the function of a package that is declared at a location, or nil.
func (g *graph) named(c *checked, at Location) *function {
	for obj, decl := range c.funcs {
		f := &function{c, obj, decl}
		if decl.Body != nil && f.at() == at {
			return f
		}
	}
	return nil
}

// call is one mention of a function in the body of another.
type call struct {
	callee *types.Func
	node   ast.Node
	// expr is the call itself; nil when the function is only mentioned, as a value.
	expr *ast.CallExpr
}

// calls lists the functions that are mentioned below a node of f, in the order of the source. The
// function literals below it are part of it. A local variable that holds a function stands for
// what it was given.
func (f *function) calls(n ast.Node) []call {
	var out []call
	exprs := make(map[ast.Node]*ast.CallExpr)
	seen := make(map[types.Object]bool)
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			fun := ast.Unparen(n.Fun)
			switch x := fun.(type) {
			case *ast.IndexExpr:
				fun = ast.Unparen(x.X)
			case *ast.IndexListExpr:
				fun = ast.Unparen(x.X)
			}
			if sel, ok := fun.(*ast.SelectorExpr); ok {
				fun = sel.Sel
			}
			exprs[fun] = n
		case *ast.Ident:
			switch obj := f.pkg.info.Uses[n].(type) {
			case *types.Func:
				out = append(out, call{obj.Origin(), n, exprs[n]})
			case *types.Var:
				if exprs[n] == nil || seen[obj] {
					break
				}
				seen[obj] = true
				for _, value := range f.values(obj) {
					ast.Inspect(value, visit)
				}
			}
		}
		return true
	}
	ast.Inspect(n, visit)
	return out
}

// values lists what is assigned to a variable in the body of f.
func (f *function) values(v types.Object) []ast.Expr {
	var out []ast.Expr
	add := func(lhs []ast.Expr, rhs []ast.Expr) {
		for i, l := range lhs {
			id, ok := l.(*ast.Ident)
			if !ok || f.pkg.info.ObjectOf(id) != v {
				continue
			}
			if len(rhs) == len(lhs) {
				out = append(out, rhs[i])
			} else if len(rhs) == 1 {
				out = append(out, rhs[0])
			}
		}
	}
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			add(n.Lhs, n.Rhs)
		case *ast.ValueSpec:
			lhs := make([]ast.Expr, len(n.Names))
			for i, name := range n.Names {
				lhs[i] = name
			}
			add(lhs, n.Values)
		}
		return true
	})
	return out
}

// value is what a local variable holds when only one thing is ever assigned to it; any other
// expression is itself, without parentheses.
func (f *function) value(e ast.Expr) ast.Expr {
	seen := make(map[types.Object]bool)
	for {
		e = ast.Unparen(e)
		id, ok := e.(*ast.Ident)
		if !ok || f.param(id) {
			return e
		}
		obj := f.pkg.info.ObjectOf(id)
		values := f.values(obj)
		if len(values) != 1 || seen[obj] {
			return e
		}
		seen[obj] = true
		e = values[0]
	}
}

// param reports whether id is a parameter of f.
func (f *function) param(id *ast.Ident) bool {
	v, ok := f.pkg.info.ObjectOf(id).(*types.Var)
	if !ok {
		return false
	}
	params := f.obj.Type().(*types.Signature).Params()
	for i := range params.Len() {
		if params.At(i) == v {
			return true
		}
	}
	return false
}

// bodies are the functions that a call of obj may run: its own, or those of the types that
// implement the interface that it is a method of. There are none for what is not followed.
func (g *graph) bodies(obj *types.Func) []*function {
	if obj.Pkg() == nil || obj.Pkg().Path() == etcdClient {
		return nil
	}
	if f := g.body(obj); f != nil {
		return []*function{f}
	}
	iface := interfaceOf(obj)
	if iface == nil {
		return nil
	}
	var out []*function
	for _, path := range g.packages() {
		scope := g.tree.checked[path].types.Scope()
		for _, name := range scope.Names() {
			typ, ok := scope.Lookup(name).(*types.TypeName)
			if !ok || typ.IsAlias() || types.IsInterface(typ.Type()) {
				continue
			}
			pointer := types.NewPointer(typ.Type())
			if !types.Implements(pointer, iface) {
				continue
			}
			method, _, _ := types.LookupFieldOrMethod(pointer, false, obj.Pkg(), obj.Name())
			if m, ok := method.(*types.Func); ok {
				if f := g.body(m.Origin()); f != nil && !slices.ContainsFunc(out, func(o *function) bool { return o.obj == f.obj }) {
					out = append(out, f)
				}
			}
		}
	}
	return out
}

// packages lists the checked packages whose functions are followed, sorted.
func (g *graph) packages() []string {
	var out []string
	for path := range g.tree.checked {
		if path != etcdClient {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

// body is the function that obj is declared with, or nil.
func (g *graph) body(obj *types.Func) *function {
	if obj.Pkg() == nil {
		return nil
	}
	c := g.tree.checked[obj.Pkg().Path()]
	if c == nil || c.funcs[obj] == nil || c.funcs[obj].Body == nil {
		return nil
	}
	return &function{c, obj, c.funcs[obj]}
}

// interfaceOf is the interface that obj is a method of, or nil.
func interfaceOf(obj *types.Func) *types.Interface {
	recv := obj.Type().(*types.Signature).Recv()
	if recv == nil {
		return nil
	}
	iface, _ := recv.Type().Underlying().(*types.Interface)
	return iface
}

// label names a function or a method as Location.Func does.
func label(obj *types.Func) string {
	recv := obj.Type().(*types.Signature).Recv()
	if recv == nil {
		return obj.Name()
	}
	typ := recv.Type()
	p, pointer := typ.(*types.Pointer)
	if pointer {
		typ = p.Elem()
	}
	named, ok := typ.(*types.Named)
	switch {
	case !ok:
		return obj.Name()
	case types.IsInterface(typ):
		return named.Obj().Name() + "." + obj.Name()
	default:
		return funcLabel(named.Obj().Name(), pointer, obj.Name())
	}
}

// followed reports whether the functions of a package are followed.
func (g *graph) followed(p *types.Package) bool {
	return p != nil && p.Path() != etcdClient && g.tree.checked[p.Path()] != nil
}

// callee is the function that a call names, or nil.
func (f *function) callee(c *ast.CallExpr) *types.Func {
	fun := ast.Unparen(c.Fun)
	if sel, ok := fun.(*ast.SelectorExpr); ok {
		fun = sel.Sel
	}
	id, ok := fun.(*ast.Ident)
	if !ok {
		return nil
	}
	if obj, ok := f.pkg.info.Uses[id].(*types.Func); ok {
		return obj.Origin()
	}
	return nil
}

// typeOf is the type of an expression; the invalid type if it is not known.
func (f *function) typeOf(e ast.Expr) types.Type {
	if t := f.pkg.info.TypeOf(e); t != nil {
		return t
	}
	return types.Typ[types.Invalid]
}

// isClient reports whether obj is the function name of etcd's client, or any if name is empty.
func isClient(obj *types.Func, name string) bool {
	return obj.Pkg() != nil && obj.Pkg().Path() == etcdClient && (name == "" || obj.Name() == name)
}

// plain takes parentheses and conversions off an expression.
func (f *function) plain(e ast.Expr) ast.Expr {
	for {
		e = ast.Unparen(e)
		c, ok := e.(*ast.CallExpr)
		if !ok || len(c.Args) != 1 || !f.pkg.info.Types[c.Fun].IsType() {
			return e
		}
		e = c.Args[0]
	}
}

// reads reports whether a call of obj may read etcd.
func (g *graph) reads(obj *types.Func, seen map[*types.Func]bool) bool {
	if seen[obj] {
		return false
	}
	seen[obj] = true
	if isClient(obj, "") {
		return obj.Type().(*types.Signature).Recv() != nil && slices.Contains([]string{"Get", "GetStream", "Do"}, obj.Name())
	}
	for _, f := range g.bodies(obj) {
		for _, c := range f.calls(f.decl.Body) {
			if g.reads(c.callee, seen) {
				return true
			}
		}
	}
	return false
}
