package controlplane

import (
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// quiet keeps the logs of client-go and controller-runtime in this process off the terminal: the output
// of a test run is meant to be read.
var quiet = sync.OnceFunc(func() {
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
})
