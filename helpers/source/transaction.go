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
// thing does. Etcd's client is known by the import path go.etcd.io/etcd/client/v3, which Kubernetes
// has used since 1.22.
func (t *Tree) Transaction(ctx context.Context, start Ref) (Chain, error) {
	at, err := t.Find(ctx, start)
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
				deaf = append(deaf, fmt.Sprintf("%s calls %s (%s), and no type that leads to etcd implements it", f.at(), label(c.callee), f.atLine(c.node.Pos()).Position()))
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

// describe turns the frames and the transaction into words.
func (g *graph) describe(last *frame, txn *transaction) (Chain, error) {
	if txn.opaque != nil {
		return Chain{}, fmt.Errorf("the transaction in %s is built in part by %s (%s), where it is not followed",
			last.at(), types.ExprString(txn.opaque), last.atLine(txn.opaque.Pos()).Position())
	}
	if again := txn.alternative(); again != nil {
		return Chain{}, fmt.Errorf("%s builds its transaction in two ways (%s): which of them a write takes cannot be told",
			last.at(), last.atLine(again.Pos()).Position())
	}
	var chain Chain
	// What each frame gives to the next that the transaction depends on.
	asked := make(map[*frame][]string)
	for _, i := range txn.ifs {
		if own := i.conds[txn.conds:]; len(own) > 0 {
			return Chain{}, fmt.Errorf("%s compares only on a condition, %s (%s): whether a write is compared cannot be told",
				last.at(), types.ExprString(own[0].expr), last.atLine(i.expr.Pos()).Position())
		}
		for _, arg := range last.elements(i.expr) {
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
		if body == nil || len(body.decl.Body.List) != 1 || f.within(body) {
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

// branch reads the operations of Then or Else.
func (f *frame) branch(txn *transaction, parts []part, asked map[*frame][]string) ([]Op, error) {
	var ops []Op
	for _, p := range parts {
		when, sent := f.when(p.conds[txn.conds:], asked)
		for _, e := range f.elements(p.expr) {
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
