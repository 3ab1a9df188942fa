package source

import (
	"context"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// Transaction is the chain from the function or method start to the etcd transaction that it leads
// to, such as (*store).Create or (*store).conditionalDelete of k8s.io/apiserver/pkg/storage/etcd3.
//
// Calls are followed through the packages that import etcd's client; a call of an interface method
// leads to every type among them that implements it. The error says where the way breaks: start
// does not exist, nothing that it calls builds a transaction with a comparison, or more than one
// thing does.
func (t *Tree) Transaction(ctx context.Context, start Ref) (Chain, error) {
	at, err := t.Find(start)
	if err != nil {
		return Chain{}, fmt.Errorf("the way to etcd's compare breaks where it begins: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	first, err := t.check(ctx, start.Package)
	if err != nil {
		return Chain{}, fmt.Errorf("following %s: %w", start, err)
	}
	g := &graph{tree: t}
	begin := g.named(first, at)
	if begin == nil {
		return Chain{}, fmt.Errorf("%s is not a function with a body, so no call can be followed from it", at)
	}
	chain, err := g.chain(begin)
	if err != nil {
		return Chain{}, fmt.Errorf("following %s to etcd's compare: %w", at, err)
	}
	return chain, nil
}

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
// expression is itself.
func (f *function) value(e ast.Expr) ast.Expr {
	for {
		id, ok := ast.Unparen(e).(*ast.Ident)
		if !ok {
			return ast.Unparen(e)
		}
		values := f.values(f.pkg.info.ObjectOf(id))
		if len(values) != 1 || f.param(id) {
			return id
		}
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

// frame is a function as it was called: by whom, and with what.
type frame struct {
	*function
	up *frame
	// in is the call that led here, in the body of up.
	in call
	// next is the call in this function that led on; zero in the last frame.
	next call
}

// chain follows begin to the one transaction that it leads to.
func (g *graph) chain(begin *function) (Chain, error) {
	type arrival struct {
		from *function
		by   call
	}
	came := map[*types.Func]arrival{begin.obj: {}}
	queue := []*function{begin}
	var compared []*function
	var bare, deaf []string
	transactions := make(map[*types.Func][]*transaction)
	for i := 0; i < len(queue); i++ {
		f := queue[i]
		for _, txn := range f.transactions() {
			if len(txn.ifs) == 0 {
				bare = append(bare, fmt.Sprintf("%s (%s)", f.at(), f.atLine(txn.pos).Position()))
				continue
			}
			if len(transactions[f.obj]) == 0 {
				compared = append(compared, f)
			}
			transactions[f.obj] = append(transactions[f.obj], txn)
		}
		for _, c := range f.calls(f.decl.Body) {
			bodies := g.bodies(c.callee)
			if len(bodies) == 0 && interfaceOf(c.callee) != nil && g.followed(c.callee.Pkg()) {
				deaf = append(deaf, fmt.Sprintf("%s calls %s at %s, which no type in %s implements", f.at(), label(c.callee), f.atLine(c.node.Pos()).Position(), strings.Join(g.packages(), ", ")))
			}
			for _, next := range bodies {
				if _, ok := came[next.obj]; !ok {
					came[next.obj] = arrival{f, c}
					queue = append(queue, next)
				}
			}
		}
	}
	switch {
	case len(compared) > 1:
		return Chain{}, fmt.Errorf("it leads to more than one transaction, in %s and in %s: begin nearer to the one that is meant", compared[0].at(), compared[1].at())
	case len(compared) == 1 && len(transactions[compared[0].obj]) > 1:
		return Chain{}, fmt.Errorf("there is more than one transaction in %s: which of them a write takes cannot be told", compared[0].at())
	case len(compared) == 0 && len(bare) > 0:
		return Chain{}, fmt.Errorf("the transaction there has no comparison: look in %s", strings.Join(bare, " and "))
	case len(compared) == 0 && len(deaf) > 0:
		return Chain{}, fmt.Errorf("the way ends at an interface: %s", strings.Join(deaf[:min(3, len(deaf))], "; "))
	case len(compared) == 0:
		return Chain{}, fmt.Errorf("nothing that it calls builds a transaction of etcd: look in %s for where the write goes now", begin.at().File)
	}

	last := compared[0]
	var hops []arrival
	for f := last; f.obj != begin.obj; f = came[f.obj].from {
		hops = append(hops, came[f.obj])
	}
	slices.Reverse(hops)
	top := &frame{function: begin}
	for i, hop := range hops {
		for _, c := range hop.from.calls(hop.from.decl.Body) {
			if c.callee == hop.by.callee && c.node != hop.by.node {
				return Chain{}, fmt.Errorf("%s calls %s twice, at lines %d and %d: which of them a write takes cannot be told",
					hop.from.at(), label(c.callee), hop.from.atLine(hop.by.node.Pos()).Line, hop.from.atLine(c.node.Pos()).Line)
			}
		}
		to := last
		if i+1 < len(hops) {
			to = hops[i+1].from
		}
		top.next = hop.by
		top = &frame{function: to, up: top, in: hop.by}
	}
	return g.describe(top, transactions[last.obj][0])
}

// followed reports whether the functions of a package are followed.
func (g *graph) followed(p *types.Package) bool {
	return p != nil && p.Path() != etcdClient && g.tree.checked[p.Path()] != nil
}

// describe turns the frames and the transaction into words.
func (g *graph) describe(last *frame, txn *transaction) (Chain, error) {
	if txn.opaque != nil {
		return Chain{}, fmt.Errorf("the transaction in %s is built in part by %s (%s), where it is not followed",
			last.at(), types.ExprString(txn.opaque), last.atLine(txn.opaque.Pos()).Position())
	}
	var chain Chain
	// The conditions and operands depend on these parameters, each in the frame it belongs to.
	asked := make(map[*frame][]string)
	for _, i := range txn.ifs {
		for _, arg := range last.elements(i) {
			c, err := g.compare(last, last, arg)
			if err != nil {
				return Chain{}, err
			}
			chain.If = append(chain.If, c.Compare)
			c.frame.ask(asked, c.operand)
		}
	}
	if len(chain.If) == 0 {
		return Chain{}, fmt.Errorf("the transaction in %s compares nothing: its If is empty", last.at())
	}
	var err error
	if chain.Then, err = last.branch(txn, txn.thens, asked); err != nil {
		return Chain{}, err
	}
	if chain.Else, err = last.branch(txn, txn.elses, asked); err != nil {
		return Chain{}, err
	}
	for f := last; f != nil; f = f.up {
		step := Step{Location: f.at()}
		if f.next.callee != nil {
			step.Calls, step.CallLine = label(f.next.callee), f.atLine(f.next.node.Pos()).Line
			step.With = asked[f]
		}
		chain.Steps = append([]Step{step}, chain.Steps...)
	}
	chain.Retry = g.retry(last, txn)
	return chain, nil
}

// arg is what the frame was called with for one of its parameters, in the words of the frame above.
func (f *frame) arg(id *ast.Ident) (value ast.Expr, ok bool) {
	if f.up == nil || f.in.expr == nil || !f.param(id) || len(f.values(f.pkg.info.ObjectOf(id))) > 0 {
		return nil, false
	}
	sig := f.obj.Type().(*types.Signature)
	for i := range sig.Params().Len() {
		if sig.Params().At(i) != f.pkg.info.ObjectOf(id) {
			continue
		}
		if sig.Variadic() && i == sig.Params().Len()-1 || i >= len(f.in.expr.Args) {
			return nil, false
		}
		return f.in.expr.Args[i], true
	}
	return nil, false
}

// meaning carries an expression of a frame upwards, towards the frame top, as long as it is a
// parameter or a field of one. The words are those of the frame where that ends. A parameter that
// no longer is one, such as a literal, ends it too.
func (f *frame) meaning(e ast.Expr, top *frame) string {
	e = f.plain(e)
	if f != top {
		switch x := e.(type) {
		case *ast.Ident:
			if arg, ok := f.arg(x); ok {
				return f.up.meaning(arg, top)
			}
		case *ast.SelectorExpr:
			if field, zero, at := f.field(x); field != nil {
				return at.meaning(field, top)
			} else if zero != "" {
				return zero
			}
		}
	}
	return types.ExprString(e)
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

// field is what a field of a parameter was given by the caller: an expression of the frame at, or
// the zero value of the field if a literal leaves it out.
func (f *frame) field(sel *ast.SelectorExpr) (value ast.Expr, zero string, at *frame) {
	id, ok := ast.Unparen(sel.X).(*ast.Ident)
	if !ok {
		return nil, "", nil
	}
	arg, ok := f.arg(id)
	if !ok {
		return nil, "", nil
	}
	at = f.up
	for {
		v := at.value(arg)
		if u, ok := v.(*ast.UnaryExpr); ok && u.Op == token.AND {
			v = ast.Unparen(u.X)
		}
		if id, ok := v.(*ast.Ident); ok {
			if arg, ok = at.arg(id); ok {
				at = at.up
				continue
			}
		}
		lit, ok := v.(*ast.CompositeLit)
		if !ok {
			return nil, "", nil
		}
		for i, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if k, ok := kv.Key.(*ast.Ident); ok && k.Name == sel.Sel.Name {
					return kv.Value, "", at
				}
			} else if s, ok := at.pkg.info.TypeOf(lit).Underlying().(*types.Struct); ok && i < s.NumFields() && s.Field(i).Name() == sel.Sel.Name {
				return e, "", at
			}
		}
		return nil, zeroValue(f.pkg.info.TypeOf(sel)), at
	}
}

// zeroValue writes the zero value of a type.
func zeroValue(t types.Type) string {
	if b, ok := t.Underlying().(*types.Basic); ok {
		switch {
		case b.Info()&types.IsBoolean != 0:
			return "false"
		case b.Info()&types.IsNumeric != 0:
			return "0"
		case b.Info()&types.IsString != 0:
			return `""`
		}
	}
	return "nothing"
}

// ask notes what an expression of the frame means one frame up, for each frame on the way.
func (f *frame) ask(asked map[*frame][]string, e ast.Expr) {
	e = f.plain(e)
	switch x := e.(type) {
	case *ast.UnaryExpr:
		f.ask(asked, x.X)
	case *ast.BinaryExpr:
		f.ask(asked, x.X)
		f.ask(asked, x.Y)
	case *ast.Ident:
		if arg, ok := f.arg(x); ok {
			f.up.note(asked, x.Name, f.up.meaning(arg, f.up))
			f.up.ask(asked, arg)
		}
	case *ast.SelectorExpr:
		field, zero, at := f.field(x)
		switch {
		case field != nil:
			at.note(asked, x.Sel.Name, at.meaning(field, at))
			at.ask(asked, field)
		case zero != "":
			at.note(asked, x.Sel.Name, zero)
		}
	}
}

// note adds an argument to the ones that the call of a frame gives.
func (f *frame) note(asked map[*frame][]string, name, value string) {
	if with := name + " = " + value; f.next.callee != nil && !slices.Contains(asked[f], with) {
		asked[f] = append(asked[f], with)
	}
}

// compared is a comparison with the expression of its operand and the frame that it belongs to.
type compared struct {
	Compare
	frame   *frame
	operand ast.Expr
}

// compare reads a comparison. It may stand in f itself or in a function that f calls for it; base
// is the frame in whose words it is told.
func (g *graph) compare(base, f *frame, e ast.Expr) (compared, error) {
	e = f.value(e)
	broken := func() (compared, error) {
		return compared{}, fmt.Errorf("what is compared in %s is not a call of Compare that can be read: %s (%s)", f.at(), types.ExprString(e), f.atLine(e.Pos()).Position())
	}
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return broken()
	}
	callee := f.callee(c)
	if callee == nil {
		return broken()
	}
	if !isClient(callee, "Compare") {
		// A helper of one return, such as the notFound of older versions.
		body := g.body(callee)
		if body == nil || len(body.decl.Body.List) != 1 {
			return broken()
		}
		r, ok := body.decl.Body.List[0].(*ast.ReturnStmt)
		if !ok || len(r.Results) != 1 {
			return broken()
		}
		return g.compare(base, &frame{function: body, up: f, in: call{callee, c, c}}, r.Results[0])
	}
	if len(c.Args) != 3 {
		return broken()
	}
	of, ok := f.value(c.Args[0]).(*ast.CallExpr)
	if !ok || len(of.Args) == 0 || f.callee(of) == nil || !isClient(f.callee(of), "") {
		return broken()
	}
	operator := f.pkg.info.Types[c.Args[1]].Value
	if operator == nil || operator.Kind() != constant.String {
		return broken()
	}
	return compared{frame: f, operand: c.Args[2], Compare: Compare{
		At:       f.atLine(c.Pos()),
		Field:    f.callee(of).Name(),
		Key:      f.meaning(of.Args[0], base),
		Operator: constant.StringVal(operator),
		Operand:  f.meaning(c.Args[2], base),
		Expects:  f.meaning(c.Args[2], nil),
	}}, nil
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
	obj, _ := f.pkg.info.Uses[id].(*types.Func)
	return obj
}

// isClient reports whether obj is the function name of etcd's client, or any if name is empty.
func isClient(obj *types.Func, name string) bool {
	return obj.Pkg() != nil && obj.Pkg().Path() == etcdClient && (name == "" || obj.Name() == name)
}

// elements are the arguments of a call of If, Then or Else, also when they are passed as a slice.
func (f *function) elements(c *ast.CallExpr) []ast.Expr {
	if c.Ellipsis == token.NoPos {
		return c.Args
	}
	if lit, ok := f.value(c.Args[len(c.Args)-1]).(*ast.CompositeLit); ok {
		return lit.Elts
	}
	return c.Args
}

// branch reads the operations of Then or Else.
func (f *frame) branch(txn *transaction, calls []branchCall, asked map[*frame][]string) ([]Op, error) {
	var ops []Op
	for _, b := range calls {
		when, sent := f.when(b.conds[len(txn.conds):], asked)
		for _, e := range f.elements(b.expr) {
			c, ok := f.value(e).(*ast.CallExpr)
			if !ok || f.callee(c) == nil || !isClient(f.callee(c), "") {
				return nil, fmt.Errorf("an operation of the transaction in %s cannot be read: %s (%s)", f.at(), types.ExprString(e), f.atLine(e.Pos()).Position())
			}
			callee := f.callee(c)
			op := Op{Name: callee.Name(), When: when, Sent: sent}
			sig := callee.Type().(*types.Signature)
			fixed := sig.Params().Len()
			if sig.Variadic() {
				fixed--
			}
			for _, a := range c.Args[:min(fixed, len(c.Args))] {
				op.Args = append(op.Args, types.ExprString(f.plain(a)))
			}
			ops = append(ops, op)
		}
	}
	return ops, nil
}

// when puts conditions into words, and says whether the caller meets them.
func (f *frame) when(conds []cond, asked map[*frame][]string) (string, Truth) {
	var words []string
	all := Yes
	for _, c := range conds {
		f.ask(asked, c.expr)
		e := f.plain(c.expr)
		word := types.ExprString(e)
		if sel, ok := e.(*ast.SelectorExpr); ok {
			word = sel.Sel.Name
		}
		if c.negated {
			word = "not " + word
		}
		words = append(words, word)
		truth := Unknown
		switch f.meaning(e, nil) {
		case "true":
			truth = Yes
		case "false":
			truth = No
		}
		if c.negated && truth != Unknown {
			truth = Yes + No - truth
		}
		switch {
		case truth == No || all == No:
			all = No
		case truth == Unknown:
			all = Unknown
		}
	}
	return strings.Join(words, " and "), all
}
