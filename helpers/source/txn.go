package source

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// transaction is one value of etcd's Txn in one function, and the calls that build it, whether they
// stand in one expression or in several statements.
type transaction struct {
	pos          token.Pos
	ifs          []*ast.CallExpr
	thens, elses []branchCall
	commit       *ast.CallExpr
	// conds are the conditions under which it is built at all.
	conds []cond
	// opaque is something else that has it in hand and may add to it; nil if there is nothing.
	opaque ast.Expr
}

// branchCall is a call of Then or Else.
type branchCall struct {
	expr  *ast.CallExpr
	conds []cond
}

// cond is the condition of an if statement around something, or of the else branch of it.
type cond struct {
	expr    ast.Expr
	negated bool
}

// transactions lists the transactions that f builds, in the order of the source.
func (f *function) transactions() []*transaction {
	// A transaction goes by the call that began it until a variable holds it, then by the variable.
	held := make(map[any]any)
	identity := func(root any) any {
		for held[root] != nil {
			root = held[root]
		}
		return root
	}
	hold := func(lhs ast.Expr, rhs ast.Expr) {
		id, ok := lhs.(*ast.Ident)
		if !ok || !f.isTxn(rhs) {
			return
		}
		from, to := identity(f.root(rhs)), identity(any(f.pkg.info.ObjectOf(id)))
		if from != to {
			held[from] = to
		}
	}
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if len(n.Lhs) == len(n.Rhs) {
				for i := range n.Lhs {
					hold(n.Lhs[i], n.Rhs[i])
				}
			}
		case *ast.ValueSpec:
			for i := range n.Values {
				if len(n.Values) == len(n.Names) {
					hold(n.Names[i], n.Values[i])
				}
			}
		}
		return true
	})

	byRoot := make(map[any]*transaction)
	var out []*transaction
	of := func(e ast.Expr) *transaction {
		root := identity(f.root(e))
		txn := byRoot[root]
		if txn == nil {
			txn = &transaction{pos: e.Pos()}
			byRoot[root] = txn
			out = append(out, txn)
		}
		return txn
	}
	f.inspect(f.decl.Body, nil, func(n ast.Node, conds []cond) {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		for _, a := range c.Args {
			if f.isTxn(a) {
				of(a).opaque = c.Fun
			}
		}
		method := f.txnMethod(c)
		if method == "" {
			return
		}
		txn := of(c)
		if begun, ok := f.root(c).(*ast.CallExpr); ok && (f.callee(begun) == nil || !isClient(f.callee(begun), "Txn")) {
			txn.opaque = begun.Fun
		}
		switch method {
		case "If":
			txn.ifs = append(txn.ifs, c)
			txn.conds = conds
		case "Then":
			txn.thens = append(txn.thens, branchCall{c, conds})
		case "Else":
			txn.elses = append(txn.elses, branchCall{c, conds})
		case "Commit":
			txn.commit = c
		}
	})
	for _, txn := range out {
		// A call may stand outside the conditions around If, as when only the comparison is optional.
		for _, b := range slices.Concat(txn.thens, txn.elses) {
			shared := 0
			for shared < min(len(txn.conds), len(b.conds)) && txn.conds[shared] == b.conds[shared] {
				shared++
			}
			txn.conds = txn.conds[:shared]
		}
	}
	return out
}

// isTxn reports whether an expression is a transaction that is still being built.
func (f *function) isTxn(e ast.Expr) bool {
	named, ok := f.pkg.info.TypeOf(e).(*types.Named)
	return ok && named.Obj().Name() == "Txn" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == etcdClient
}

// txnMethod is the name of the method of etcd's Txn that a call calls, or empty.
func (f *function) txnMethod(c *ast.CallExpr) string {
	sel, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr)
	if !ok || f.callee(c) == nil || !isClient(f.callee(c), "") || !f.isTxn(sel.X) {
		return ""
	}
	return f.callee(c).Name()
}

// root is where a chain of calls on a transaction begins: the variable (a types.Object) or the call
// (a node) that the first of them is made on.
func (f *function) root(e ast.Expr) any {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.CallExpr:
			if f.txnMethod(x) == "" {
				return x
			}
			e = ast.Unparen(x.Fun).(*ast.SelectorExpr).X
		case *ast.Ident:
			return f.pkg.info.ObjectOf(x)
		default:
			return x
		}
	}
}

// inspect visits the nodes below n in the order of the source, each with the conditions of the if
// statements around it.
func (f *function) inspect(n ast.Node, conds []cond, visit func(ast.Node, []cond)) {
	ast.Inspect(n, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		visit(n, conds)
		s, ok := n.(*ast.IfStmt)
		if !ok {
			return true
		}
		if s.Init != nil {
			f.inspect(s.Init, conds, visit)
		}
		f.inspect(s.Cond, conds, visit)
		f.inspect(s.Body, append(slices.Clip(conds), cond{s.Cond, false}), visit)
		if s.Else != nil {
			f.inspect(s.Else, append(slices.Clip(conds), cond{s.Cond, true}), visit)
		}
		return false
	})
}

// retry finds what the steps do when the comparison failed: the outermost one that looks.
func (g *graph) retry(last *frame, txn *transaction) Retry {
	var frames []*frame
	for f := last; f != nil; f = f.up {
		frames = append(frames, f)
	}
	slices.Reverse(frames)
	for _, f := range frames {
		answered := f.next.expr
		if f == last {
			answered = txn.commit
		}
		answer := f.result(answered)
		if answer == nil {
			continue
		}
		if at, body := f.failed(answer); body != nil {
			return g.retryIn(f, answer, at, body)
		}
	}
	return Retry{}
}

// result is the variable that gets the first result of a call, or nil.
func (f *function) result(c *ast.CallExpr) types.Object {
	var obj types.Object
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && c != nil && len(a.Rhs) == 1 && ast.Unparen(a.Rhs[0]) == ast.Expr(c) {
			if id, ok := a.Lhs[0].(*ast.Ident); ok && id.Name != "_" {
				obj = f.pkg.info.ObjectOf(id)
			}
		}
		return obj == nil
	})
	return obj
}

// failed is the statement that runs when the answer says that the comparison failed, and where the
// answer is looked at.
func (f *function) failed(answer types.Object) (at token.Pos, body ast.Stmt) {
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		s, ok := n.(*ast.IfStmt)
		if !ok || body != nil {
			return body == nil
		}
		cond := ast.Unparen(s.Cond)
		branch := s.Else
		for {
			if b, ok := cond.(*ast.BinaryExpr); ok && b.Op == token.LAND {
				cond = ast.Unparen(b.Y)
				continue
			}
			not, ok := cond.(*ast.UnaryExpr)
			if !ok || not.Op != token.NOT {
				break
			}
			cond, branch = ast.Unparen(not.X), s.Body
		}
		sel, ok := cond.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Succeeded" {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && f.pkg.info.ObjectOf(id) == answer && branch != nil {
			at, body = s.Pos(), branch
		}
		return body == nil
	})
	return at, body
}

// retryIn reads the statement that runs when the comparison failed. It is zero if the statement
// neither passes the answer on nor begins a loop anew.
func (g *graph) retryIn(f *frame, answer types.Object, at token.Pos, body ast.Stmt) Retry {
	r := Retry{In: f.atLine(at)}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BranchStmt:
			r.Again = r.Again || n.Tok == token.CONTINUE
		case *ast.CallExpr:
			callee := f.callee(n)
			if r.Func != (Location{}) || callee == nil || g.body(callee) == nil {
				break
			}
			for _, a := range n.Args {
				if v := f.plain(f.value(a)); f.mentions(v, answer) {
					r.Func, r.From = g.body(callee).at(), types.ExprString(v)
					break
				}
			}
		}
		return true
	})
	for _, c := range f.calls(body) {
		if g.reads(c.callee, make(map[*types.Func]bool)) {
			r.SecondRead = label(c.callee)
			break
		}
	}
	if !r.Again && r.Func == (Location{}) {
		return Retry{}
	}
	return r
}

// mentions reports whether a variable occurs in an expression.
func (f *function) mentions(e ast.Expr, v types.Object) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && f.pkg.info.ObjectOf(id) == v {
			found = true
		}
		return !found
	})
	return found
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
