package source

import (
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// The two functions that make an update a transaction of etcd. Up to Kubernetes 1.31 there was only the first.
var (
	GuaranteedUpdate = Decl("k8s.io/apiserver/pkg/storage/etcd3", "(*store).GuaranteedUpdate")
	OptimisticPut    = Decl("go.etcd.io/etcd/client/v3/kubernetes", "Client.OptimisticPut")
)

// Update is what the source of one version says of an update.
type Update struct {
	// Revision is what GuaranteedUpdate hands on to OptimisticPut as the expected revision, such as
	// "origState.rev", and Options are the options that it sets to true, such as "GetOnFailure".
	Revision string
	Options  []string

	// At is where OptimisticPut is declared, which builds the transaction.
	At Location
	// Compare is the compare without the name of its package, such as
	// `Compare(ModRevision(key), "=", expectedRevision)`.
	Compare string
	// Field is what it compares, such as "ModRevision", and Operator how, such as "=".
	Field, Operator string
	// Then and Else are the operations of the branches, such as "OpPut" and "OpGet". Else may be empty;
	// ElseIf is the option that asks for it, such as "GetOnFailure".
	Then, Else, ElseIf string

	// From is the part of the answer that GuaranteedUpdate goes on with after a failed compare, such as
	// "txnResp.KV"; empty if there is none. State is the variable that it becomes, such as "origState".
	From, State string
	// Again reports whether the loop then begins anew, and Reads are the functions by which it reads
	// once more before that.
	Again bool
	Reads []string

	asked, txn, retry string // the lines
}

// FieldName is the field as etcd's API and etcdctl write it, such as "mod_revision".
func (u Update) FieldName() string {
	return strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(u.Field, "${1}_$2"))
}

// String is the lines of the source by which an update is compared.
func (u Update) String() string {
	return "The revision that an update hands on:\n" + u.asked +
		"\n\nThe transaction that it becomes:\n" + u.txn +
		"\n\nWhat comes after a failed compare:\n" + u.retry
}

// UpdateTransaction reads what the source says of an update. If the code has moved, the error says
// which part of it is no longer there.
func (t *Tree) UpdateTransaction(ctx context.Context) (Update, error) {
	t.Load(ctx, GuaranteedUpdate, OptimisticPut)
	update, errUpdate := t.Declaration(ctx, GuaranteedUpdate)
	put, errPut := t.Declaration(ctx, OptimisticPut)
	if err := cmp.Or(errUpdate, errPut); err != nil {
		return Update{}, err
	}
	var u Update
	if err := u.readAsked(update); err != nil {
		return Update{}, fmt.Errorf("the revision that an update hands on is no longer there: %w", err)
	}
	if err := u.readTxn(put); err != nil {
		return Update{}, fmt.Errorf("what an update compares, and does then, is no longer there: %w", err)
	}
	if err := u.readRetry(update); err != nil {
		return Update{}, fmt.Errorf("what an update does after a failed compare is no longer there: %w", err)
	}
	return u, nil
}

// readAsked reads what update hands on to OptimisticPut.
func (u *Update) readAsked(update Declaration) error {
	call, err := update.Call("OptimisticPut", 5)
	if err != nil {
		return err
	}
	u.asked = update.Quote(call)
	u.Revision = update.Text(call.Args[3])
	for n := range ast.Preorder(call) {
		if option, ok := n.(*ast.KeyValueExpr); ok && update.Text(option.Value) == "true" {
			u.Options = append(u.Options, update.Text(option.Key))
		}
	}
	return nil
}

// readTxn reads the transaction that put builds.
func (u *Update) readTxn(put Declaration) error {
	condition, errIf := put.Call("If", 1)
	compare, errCompare := put.Call("Compare", 3)
	then, errThen := put.Call("Then", 1)
	if err := cmp.Or(errIf, errCompare, errThen); err != nil {
		return err
	}
	if condition.Args[0] != compare {
		return fmt.Errorf("%s does not build an If of that Compare", put)
	}
	u.txn = put.Quote(then)
	u.At = put.Location
	u.Compare = strings.ReplaceAll(put.Text(compare), "clientv3.", "")
	u.Field = Called(compare.Args[0])
	u.Operator = strings.Trim(put.Text(compare.Args[1]), `"`)
	u.Then = Called(then.Args[0])
	otherwise, err := put.Call("Else", 1)
	if err != nil {
		return nil // a transaction without an else branch is one, too
	}
	u.Else = Called(otherwise.Args[0])
	if option, ok := Around[*ast.IfStmt](put, otherwise); ok {
		u.ElseIf = last(put.Text(option.Cond))
		u.txn = put.Quote(then, option)
	}
	return nil
}

// readRetry reads what update does when OptimisticPut answers that the compare has failed.
func (u *Update) readRetry(update Declaration) error {
	answer := ""
	for n := range ast.Preorder(update.Syntax) {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if Called(n.Rhs[0]) == "OptimisticPut" {
				answer = update.Text(n.Lhs[0])
			}
		case *ast.IfStmt:
			if update.Text(n.Cond) == "!"+answer+".Succeeded" {
				u.readFailed(update, n, answer)
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no if statement for an answer of OptimisticPut that has not Succeeded", update)
}

// readFailed reads the statement of update that is run when the answer is that the compare has failed.
func (u *Update) readFailed(update Declaration, failed *ast.IfStmt, answer string) {
	shown := []ast.Node{failed.Cond}
	for n := range ast.Preorder(failed.Body) {
		switch n := n.(type) {
		case *ast.CallExpr:
			if !strings.HasPrefix(strings.ToLower(Called(n)), "get") {
				break
			}
			i := slices.IndexFunc(n.Args, func(a ast.Expr) bool { return strings.HasPrefix(update.Text(a), answer+".") })
			assign, ok := Around[*ast.AssignStmt](update, n)
			if i < 0 || !ok {
				u.Reads = append(u.Reads, Called(n))
				break
			}
			u.From, u.State = update.Text(n.Args[i]), update.Text(assign.Lhs[0])
			shown = append(shown, assign)
		case *ast.BranchStmt:
			u.Again = u.Again || n.Tok == token.CONTINUE
			shown = append(shown, n)
		}
	}
	u.retry = update.Quote(shown...)
}
