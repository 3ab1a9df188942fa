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
	pos               token.Pos
	ifs, thens, elses []part
	commit            *ast.CallExpr
	// conds is how many conditions all parts have in common: those under which there is a
	// transaction at all.
	conds int
	// opaque is something else that has it in hand and may add to it; nil if there is nothing.
	opaque ast.Expr
}

// alternative is a second call of If, Then or Else, or nil. Etcd's Txn takes each of them once, so a
// second one belongs to another way of building it.
func (t *transaction) alternative() *ast.CallExpr {
	switch {
	case len(t.ifs) > 1:
		return t.ifs[1].expr
	case len(t.thens) > 1:
		return t.thens[1].expr
	case len(t.elses) > 1:
		return t.elses[1].expr
	}
	return nil
}

// part is a call of If, Then or Else, and the conditions of the if statements around it.
type part struct {
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
			txn.ifs = append(txn.ifs, part{c, conds})
		case "Then":
			txn.thens = append(txn.thens, part{c, conds})
		case "Else":
			txn.elses = append(txn.elses, part{c, conds})
		case "Commit":
			txn.commit = c
		}
	})
	for _, txn := range out {
		parts := slices.Concat(txn.ifs, txn.thens, txn.elses)
		for i, p := range parts {
			n := 0
			for n < min(len(p.conds), len(parts[0].conds)) && p.conds[n] == parts[0].conds[n] {
				n++
			}
			if i == 0 || n < txn.conds {
				txn.conds = n
			}
		}
	}
	return out
}

// isTxn reports whether an expression is a transaction that is still being built.
func (f *function) isTxn(e ast.Expr) bool {
	named, ok := f.typeOf(e).(*types.Named)
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
