package source

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

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
// answer is looked at; nil if there is none.
func (f *function) failed(answer types.Object) (at token.Pos, body ast.Stmt) {
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		block, ok := n.(*ast.BlockStmt)
		for i := 0; ok && i < len(block.List) && body == nil; i++ {
			s, ok := block.List[i].(*ast.IfStmt)
			switch {
			case !ok:
			case f.saysFailed(s.Cond, answer):
				at, body = s.Pos(), s.Body
			case f.isSucceeded(s.Cond, answer) && s.Else != nil:
				at, body = s.Pos(), s.Else
			case f.isSucceeded(s.Cond, answer) && leaves(s.Body):
				at, body = s.Pos(), &ast.BlockStmt{List: block.List[i+1:]}
			}
		}
		return body == nil
	})
	return at, body
}

// saysFailed reports whether a condition can hold only when the comparison failed.
func (f *function) saysFailed(cond ast.Expr, answer types.Object) bool {
	switch c := ast.Unparen(cond).(type) {
	case *ast.BinaryExpr:
		return c.Op == token.LAND && (f.saysFailed(c.X, answer) || f.saysFailed(c.Y, answer))
	case *ast.UnaryExpr:
		return c.Op == token.NOT && f.isSucceeded(c.X, answer)
	}
	return false
}

// isSucceeded reports whether an expression is the field Succeeded of the answer.
func (f *function) isSucceeded(e ast.Expr, answer types.Object) bool {
	sel, ok := ast.Unparen(e).(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Succeeded" {
		return false
	}
	id, ok := ast.Unparen(sel.X).(*ast.Ident)
	return ok && f.pkg.info.ObjectOf(id) == answer
}

// leaves reports whether a block ends by leaving what is around it.
func leaves(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}
	switch b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// retryIn reads the statement that runs when the comparison failed. It is zero if the statement
// neither passes the answer on nor begins a loop anew.
func (g *graph) retryIn(f *frame, answer types.Object, at token.Pos, body ast.Stmt) Retry {
	r := Retry{In: f.atLine(at)}
	loop := f.loopAround(at)
	if block, ok := body.(*ast.BlockStmt); ok && loop != nil && len(block.List) > 0 {
		// What is left of a loop begins it anew by coming to its end.
		end := len(loop.Body.List) - 1
		r.Again = block.List[len(block.List)-1] == loop.Body.List[end] && !leaves(block)
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BranchStmt:
			r.Again = r.Again || n.Tok == token.CONTINUE
		case *ast.CallExpr:
			callee := f.callee(n)
			if r.Func != (Location{}) || callee == nil {
				break
			}
			bodies := g.bodies(callee)
			for _, a := range n.Args {
				if v := f.plain(f.value(a)); len(bodies) > 0 && f.mentions(v, answer) {
					r.Func, r.From = bodies[0].at(), types.ExprString(v)
					break
				}
			}
		}
		return true
	})
	if !r.Again && r.Func == (Location{}) {
		return Retry{}
	}
	next := []ast.Node{body}
	if r.Again && loop != nil {
		next = append(next, everyTurn(loop)...)
	}
	for _, n := range next {
		for _, c := range f.calls(n) {
			if r.SecondRead == "" && g.reads(c.callee, make(map[*types.Func]bool)) {
				r.SecondRead = label(c.callee)
			}
		}
	}
	return r
}

// loopAround is the innermost for statement around a position, or nil.
func (f *function) loopAround(at token.Pos) *ast.ForStmt {
	var loop *ast.ForStmt
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		if l, ok := n.(*ast.ForStmt); ok && l.Pos() <= at && at < l.End() {
			loop = l
		}
		return true
	})
	return loop
}

// everyTurn lists what runs in every turn of a loop: the statements that stand in the loop itself,
// under no condition.
func everyTurn(loop *ast.ForStmt) []ast.Node {
	var out []ast.Node
	for _, s := range loop.Body.List {
		switch s := s.(type) {
		case *ast.IfStmt:
			if s.Init != nil {
				out = append(out, s.Init)
			}
			out = append(out, s.Cond)
		case *ast.AssignStmt, *ast.ExprStmt, *ast.DeclStmt:
			out = append(out, s)
		}
	}
	return out
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
