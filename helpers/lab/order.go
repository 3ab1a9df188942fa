package lab

import "k8s.io/apimachinery/pkg/util/resourceversion"

// OrderHook is how [Lab.Order] compares two resourceVersions.
var OrderHook = Hook[func(a, b string) (int, error)]{resourceversion.CompareResourceVersion}

// Order compares two resourceVersions of one resource: -1 when a is older than b, 0 when they are the same,
// 1 when a is newer. It is apimachinery's CompareResourceVersion; the error is that of a token which is no
// number of that form.
func (l *Lab) Order(a, b string) (int, error) { return OrderHook.in(l)(a, b) }
