#!/bin/sh
# A client of Caisson's control channel in plain POSIX shell: it needs printf,
# mv, rm and sleep. docs/control-protocol.md describes what it does, and what
# `caisson-guest ctl` does better: this one looks for an answer once a second.
#
#   control-client.sh VERB [INPUT]     ask, and wait for the answer; INPUT is a JSON object
#   control-client.sh wait ID          wait for the answer of an earlier request
#
# Prints the answer. A request may wait for a person, and that for days: with
# CAISSON_TIMEOUT=SECONDS it leaves after so long, and says how to come back.
#
# Exit status: 0 done, 1 failed, 2 not a valid request, 75 safe to try again, 76
# begun and its outcome is not known (yet), 77 refused.
set -u
umask 077
dir=${CAISSON_CONTROL:-/run/caisson}
requests=$dir/channel/requests

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
	echo "usage: $0 VERB [INPUT] | $0 wait ID" >&2
	exit 2
fi
case $1 in *[!a-z0-9._-]*)
	echo "$0: a verb has a-z, 0-9, ., _ and - only" >&2
	exit 2
	;;
esac

# number LINE KEY sets $number to the first number by that key, and word LINE KEY
# sets $word to the first text: files are of one line, their keys come in the order
# of the documentation, and a quote within a text has a backslash before it.
number() {
	number=${1#*\""$2"\":}
	[ "$number" != "$1" ] || return 1
	number=${number%%[!0-9]*}
}
word() {
	word=${1#*\""$2"\":\"}
	[ "$word" != "$1" ] || return 1
	word=${word%%\"*}
}

# channel reads what a request has to say of the channel.
channel() {
	[ -e "$dir/public/identity.json" ] && [ -e "$dir/public/status.json" ] &&
		read -r identity <"$dir/public/identity.json" && read -r status <"$dir/public/status.json" &&
		number "$identity" generation && generation=$number && number "$status" epoch && now=$number
}

# recovered asks whether a request is known, which has its answer published again
# where it has one. It fails where there is no record of it: it was never begun.
# One of an earlier generation gets no other answer than what is told of it.
recovered() {
	told=$(CAISSON_TIMEOUT=20 sh "$0" recover "{\"id\":\"$id\"}" 2>/dev/null)
	case $told in
	*'"code":"not-found"'*) return 1 ;;
	*'"state":"completed"'*'"code":"generation-stale"'*)
		printf '%s\n' "$told"
		exit 1
		;;
	esac
}

if ! channel; then
	echo "$0: there is no control channel at $dir, or it is not ready" >&2
	exit 75
fi
epoch=$now
waited=0 # seconds are counted by sleeping, not read from a clock, which may jump
taken=
if [ "$1" = wait ]; then
	id=${2-}
	case $id in '' | *[!0-9a-f-]*)
		echo "$0: $id is not the id of a request" >&2
		exit 2
		;;
	esac
	taken=yes
	answer=$dir/public/responses/$id
	if [ ! -e "$answer.json" ] && [ ! -e "$answer.accepted.json" ] && ! recovered; then
		printf '%s\n' "$told"
		exit 1
	fi
else
	read -r id </proc/sys/kernel/random/uuid || exit 1
	answer=$dir/public/responses/$id
	if ! printf '{"version":1,"id":"%s","generation":%s,"epoch":%s,"wait":10000,"verb":"%s","input":%s}\n' \
		"$id" "$generation" "$epoch" "$1" "${2-{\}}" >"$requests/.$id.tmp" ||
		! mv "$requests/.$id.tmp" "$requests/$id.json"; then
		rm -f "$requests/.$id.tmp"
		exit 75
	fi
fi

# leave ends the waiting, where the request cannot be taken back: never send it again.
leave() {
	if [ -z "$taken" ] && rm "$requests/$id.json" 2>/dev/null; then
		echo "$0: nobody took the request; it was taken back" >&2
		exit 75
	fi
}

asked=
while [ ! -e "$answer.json" ]; do
	if [ -e "$answer.accepted.json" ]; then
		taken=yes
		if [ -z "$asked" ] && read -r line <"$answer.accepted.json" && word "$line" state && [ "$word" = waiting ]; then
			asked=yes
			echo "$0: a person is asked; $0 wait $id comes back to it" >&2
		fi
	elif [ ! -e "$requests/$id.json" ] && channel && [ "$now" != "$epoch" ] && word "$status" state && [ "$word" = healthy ]; then
		# Who took it may have ended before there was a record of it.
		epoch=$now
		if [ "$1" = recover ] || ! recovered; then
			[ ! -e "$answer.json" ] || continue
			echo "$0: who took the request ended before it was recorded" >&2
			exit 75
		fi
	fi
	if [ -z "$taken" ] && [ "$waited" -ge "${CAISSON_WAIT:-10}" ]; then
		leave
		taken=yes # only its end can tell now
	fi
	if [ -n "${CAISSON_TIMEOUT-}" ] && [ "$waited" -ge "$CAISSON_TIMEOUT" ]; then
		leave
		echo "$0: the request has no end yet; $0 wait $id goes on waiting" >&2
		exit 76
	fi
	sleep 1
	waited=$((waited + 1))
done

read -r line <"$answer.json"
printf '%s\n' "$line"
word "$line" state
number "$line" exit || exit 76
case $word:$number in
completed:0) exit 0 ;;
rejected:2 | rejected:75 | rejected:76 | rejected:77) exit "$number" ;;
*) exit 1 ;;
esac
