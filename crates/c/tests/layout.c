/* What the compiler makes of the header: one line for each structure and member. */
#include <anabranch.h>
#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define MEMBER(type, member) printf(#type "." #member " %zu\n", offsetof(type, member))

int main(void)
{
    SIZE(anabranch_options);
    MEMBER(anabranch_options, private_key);
    MEMBER(anabranch_options, name);
    MEMBER(anabranch_options, adapters);
    MEMBER(anabranch_options, admitted_keys);
    MEMBER(anabranch_options, admitted_count);
    MEMBER(anabranch_options, patience);
    MEMBER(anabranch_options, port);
    MEMBER(anabranch_options, admission);
    MEMBER(anabranch_options, spread);
    SIZE(anabranch_connect_options);
    MEMBER(anabranch_connect_options, deadline);
    MEMBER(anabranch_connect_options, wish);
    SIZE(anabranch_standing);
    MEMBER(anabranch_standing, round_trip);
    MEMBER(anabranch_standing, bandwidth);
    MEMBER(anabranch_standing, paths);
    MEMBER(anabranch_standing, adapter);
    SIZE(anabranch_event);
    MEMBER(anabranch_event, kind);
    MEMBER(anabranch_event, flag);
    MEMBER(anabranch_event, peer);
    MEMBER(anabranch_event, adapter);
    MEMBER(anabranch_event, from);
    return 0;
}
