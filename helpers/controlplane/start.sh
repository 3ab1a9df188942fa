#!/bin/sh
# Runs one kube-apiserver of a control plane and keeps its exit status, which envtest does not report.
# The values are filled in by the process that starts it.
folder=@FOLDER@
name=@NAME@
program=@PROGRAM@

case $1 in
--help) exit 0 ;; # envtest asks which flags there are, at the price of a start; there are no old ones
--run)
	shift
	echo $$ >"$folder/pids/$name" || exit 1
	[ -e "$folder/alive" ] || exit 1
	# Collecting garbage less often starts it a tenth sooner and changes nothing else that can be seen.
	GOGC=${GOGC:-400}
	export GOGC
	exec "$program" "$@"
	;;
esac

trap : INT TERM HUP # they are for the program; this shell waits for it
/bin/sh "$0" --run "$@"
status=$?
echo $status >"$folder/$name.exit"
exit $status
